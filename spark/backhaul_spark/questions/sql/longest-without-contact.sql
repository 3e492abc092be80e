-- Vehicles by the time since their newest reading, the longest silent first.
-- reads: newest, vehicles, asked
-- column device: the vehicle
-- column fleet: as it says itself
-- column model: as it says itself
-- column last_at: when it read something last, UTC
-- column silent_h: hours since then
SELECT
  seen.device, vehicles.fleet, vehicles.model, at_ns(seen.last_ns) AS last_at,
  CAST(asked.to_ns - seen.last_ns AS DOUBLE) / 3600000000000 AS silent_h
FROM (SELECT device, max(at_ns) AS last_ns FROM newest GROUP BY device) AS seen
CROSS JOIN asked
LEFT JOIN vehicles ON vehicles.device = seen.device
ORDER BY seen.last_ns, seen.device
