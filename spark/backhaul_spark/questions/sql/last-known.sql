-- The newest reading of every series of every vehicle.
-- reads: newest
-- column device: the vehicle
-- column node: the series, with type and key
-- column type: see node
-- column key: see node
-- column at: when it was read, UTC
-- column value: the newest number, in the series' unit
-- column text: the newest text
SELECT device, node, type, key, at_ns(at_ns) AS at, value, text
FROM newest
ORDER BY device, node, type, key
