-- The newest position of each vehicle (with --device of one).
-- tsbs: last-loc, single-last-loc
-- reads: lat_last, lon_last, vehicles
-- column device: the vehicle
-- column driver: as it says itself
-- column at: when it was there, UTC
-- column lat: latitude, as the series has it
-- column lon: longitude, as the series has it
SELECT lat_last.device, vehicles.driver, at_ns(lat_last.at_ns) AS at, lat_last.value AS lat, lon_last.value AS lon
FROM lat_last
INNER JOIN lon_last ON lon_last.device = lat_last.device
LEFT JOIN vehicles ON vehicles.device = lat_last.device
ORDER BY lat_last.device
