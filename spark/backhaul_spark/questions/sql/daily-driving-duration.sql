-- How long each vehicle moves in a day, the mean of days on which it moved: stretches of ten minutes with a mean speed above `moving`.
-- tsbs: avg-daily-driving-duration
-- reads: driving, vehicles, limits
-- column fleet: as it says itself
-- column device: the vehicle
-- column driver: as it says itself
-- column days: days on which it moved
-- column moving_h: mean hours of such a day
SELECT vehicles.fleet, daily.device, vehicles.driver, count(*) AS days, avg(daily.moving_h) AS moving_h
FROM (
  SELECT device, at_ns - at_ns % 86400000000000 AS day_ns, count(*) / 6E0 AS moving_h
  FROM driving CROSS JOIN limits
  WHERE speed > moving
  GROUP BY 1, 2
) AS daily
LEFT JOIN vehicles ON vehicles.device = daily.device
GROUP BY vehicles.fleet, daily.device, vehicles.driver
ORDER BY daily.device
