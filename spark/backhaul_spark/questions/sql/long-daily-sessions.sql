-- Vehicles that moved for more than ten hours of a day: more than 60 stretches of ten minutes with a mean speed above `moving`.
-- tsbs: long-daily-sessions
-- span: 24 hours
-- reads: driving, vehicles, limits
-- column device: the vehicle
-- column driver: as it says itself
-- column moving_h: hours in which it moved
SELECT moving.device, vehicles.driver, moving.stretches / 6E0 AS moving_h
FROM (
  SELECT device, count(*) AS stretches
  FROM driving CROSS JOIN limits
  WHERE speed > moving
  GROUP BY device
) AS moving
LEFT JOIN vehicles ON vehicles.device = moving.device
WHERE moving.stretches > 60
ORDER BY moving.device
