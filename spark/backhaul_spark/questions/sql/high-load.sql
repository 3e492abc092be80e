-- Vehicles whose load is above the part `high_load` of their capacity.
-- tsbs: high-load
-- reads: load_last, vehicles, limits
-- column device: the vehicle
-- column driver: as it says itself
-- column at: when it was read, UTC
-- column load: in the unit of the series
-- column part: of load_capacity, 0 to 1
SELECT
  load_last.device, vehicles.driver, at_ns(load_last.at_ns) AS at, load_last.value AS load,
  load_last.value / nullif(vehicles.load_capacity, 0) AS part
FROM load_last
INNER JOIN vehicles ON vehicles.device = load_last.device
CROSS JOIN limits
WHERE load_last.value / nullif(vehicles.load_capacity, 0) > limits.high_load
ORDER BY part DESC, load_last.device
