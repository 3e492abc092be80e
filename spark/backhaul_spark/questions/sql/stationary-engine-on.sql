-- How long vehicles stood with the engine on: stretches of ten minutes with a mean speed of at most `moving`, the engine on for half of it.
-- reads: driving, running, vehicles, limits
-- column device: the vehicle
-- column fleet: as it says itself
-- column driver: as it says itself
-- column idle_h: hours in which it stood with the engine on
-- column on_h: hours with the engine on
-- column idle: idle_h as a part of on_h, 0 to 1
SELECT
  idling.device, vehicles.fleet, vehicles.driver,
  idling.idle / 6E0 AS idle_h, idling.engine_on / 6E0 AS on_h,
  idling.idle / CAST(idling.engine_on AS DOUBLE) AS idle
FROM (
  SELECT driving.device, count_if(driving.speed <= limits.moving) AS idle, count(*) AS engine_on
  FROM driving
  INNER JOIN (
    SELECT
      device, at_ns - at_ns % 600000000000 AS at_ns,
      sum(CASE WHEN total > 0 THEN n ELSE 0 END) / CAST(sum(n) AS DOUBLE) AS on_part
    FROM running GROUP BY 1, 2
  ) AS engine ON engine.device = driving.device AND engine.at_ns = driving.at_ns
  CROSS JOIN limits
  WHERE engine.on_part >= 0.5
  GROUP BY driving.device
) AS idling
LEFT JOIN vehicles ON vehicles.device = idling.device
WHERE idling.idle > 0
ORDER BY idling.idle DESC, idling.device
