-- All series of the fleet, with their units.
-- reads: newest, units
-- column node: the series, with type and key
-- column type: see node
-- column key: see node
-- column unit: as [fleet.units] says
-- column vehicles: how many have read it
-- column last_at: when it was read last, UTC
SELECT
  newest.node, newest.type, newest.key, max(units.unit) AS unit,
  count(DISTINCT newest.device) AS vehicles,
  at_ns(max(newest.at_ns)) AS last_at
FROM newest
LEFT JOIN units ON units.node = newest.node AND units.type = newest.type AND units.key = newest.key
GROUP BY newest.node, newest.type, newest.key
ORDER BY newest.node, newest.type, newest.key
