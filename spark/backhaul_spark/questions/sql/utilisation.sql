-- How much of each day a vehicle moved: stretches of ten minutes whose mean speed is above `moving`.
-- reads: driving, vehicles, limits
-- column device: the vehicle
-- column fleet: as it says itself
-- column model: as it says itself
-- column day: UTC
-- column moving_h: hours in which it moved
-- column seen_h: hours with readings of its speed
-- column utilisation: moving_h as a part of 24 hours, 0 to 1
SELECT
  days.device, vehicles.fleet, vehicles.model, CAST(at_ns(days.day_ns) AS DATE) AS day,
  days.moving / 6E0 AS moving_h, days.seen / 6E0 AS seen_h, days.moving / 144E0 AS utilisation
FROM (
  SELECT
    driving.device, at_ns - at_ns % 86400000000000 AS day_ns,
    count_if(speed > moving) AS moving, count(*) AS seen
  FROM driving CROSS JOIN limits
  GROUP BY 1, 2
) AS days
LEFT JOIN vehicles ON vehicles.device = days.device
ORDER BY days.device, days.day_ns
