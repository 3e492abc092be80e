-- Vehicles that stand: their mean speed in ten minutes is below `moving`.
-- tsbs: stationary-trucks
-- span: 10 minutes
-- reads: speed, vehicles, limits
-- column device: the vehicle
-- column driver: as it says itself
-- column speed: mean, in the unit of the series
SELECT means.device, vehicles.driver, means.speed
FROM (SELECT device, sum(total) / sum(n) AS speed FROM speed GROUP BY device) AS means
CROSS JOIN limits
LEFT JOIN vehicles ON vehicles.device = means.device
WHERE means.speed < limits.moving
ORDER BY means.device
