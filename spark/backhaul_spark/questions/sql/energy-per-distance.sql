-- Energy for a kilometre by model and firmware, of trips that have ended (the firmware is the newest that a vehicle said).
-- reads: trips, vehicles, asked
-- column firmware: as the vehicles say
-- column model: as the vehicles say
-- column vehicles: how many
-- column trips: how many
-- column distance_km: of all these trips
-- column energy_wh: of all these trips
-- column wh_per_km: energy for each kilometre
SELECT
  vehicles.firmware, vehicles.model, count(DISTINCT trips.device) AS vehicles, count(*) AS trips,
  sum(trips.distance_m) / 1000 AS distance_km, sum(trips.energy_wh) AS energy_wh,
  sum(trips.energy_wh) / nullif(sum(trips.distance_m) / 1000, 0) AS wh_per_km
FROM trips
INNER JOIN vehicles ON vehicles.device = trips.device
CROSS JOIN asked
WHERE trips.energy_wh IS NOT NULL AND trips.start_ns >= asked.from_ns AND trips.end_ns < asked.to_ns
GROUP BY vehicles.firmware, vehicles.model
ORDER BY vehicles.firmware, vehicles.model
