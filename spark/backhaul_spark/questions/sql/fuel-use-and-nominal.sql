-- The fuel that a fleet's vehicles use while they move, beside their maker's figure.
-- tsbs: avg-vs-projected-fuel-consumption
-- reads: speed, fuel_use, vehicles, limits
-- column fleet: as the vehicles say
-- column fuel_use: mean of the readings while the speed is above `moving`, in the unit of the series
-- column nominal_fuel_use: mean over the same readings, in its own unit
SELECT
  vehicles.fleet, sum(used.total) / sum(used.n) AS fuel_use,
  sum(used.n * vehicles.nominal_fuel_use) / sum(used.n) AS nominal_fuel_use
FROM (
  SELECT fuel_use.device, sum(fuel_use.total) AS total, sum(fuel_use.n) AS n
  FROM fuel_use
  INNER JOIN speed ON speed.device = fuel_use.device AND speed.at_ns = fuel_use.at_ns
  CROSS JOIN limits
  WHERE speed.total / speed.n > limits.moving
  GROUP BY fuel_use.device
) AS used
INNER JOIN vehicles ON vehicles.device = used.device
WHERE vehicles.fleet IS NOT NULL AND vehicles.nominal_fuel_use IS NOT NULL
GROUP BY vehicles.fleet
ORDER BY vehicles.fleet
