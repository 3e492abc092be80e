-- Vehicles whose fuel is below `low_fuel`.
-- tsbs: low-fuel
-- reads: fuel_last, vehicles, limits
-- column device: the vehicle
-- column driver: as it says itself
-- column at: when it was read, UTC
-- column fuel: the rest, 0 to 1
SELECT fuel_last.device, vehicles.driver, at_ns(fuel_last.at_ns) AS at, fuel_last.value AS fuel
FROM fuel_last
CROSS JOIN limits
LEFT JOIN vehicles ON vehicles.device = fuel_last.device
WHERE fuel_last.value < limits.low_fuel
ORDER BY fuel_last.value, fuel_last.device
