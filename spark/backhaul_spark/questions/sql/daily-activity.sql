-- How long vehicles were in order on each day, by fleet and model: stretches of ten minutes whose mean status is below 1.
-- tsbs: daily-activity
-- reads: status, vehicles
-- column fleet: as the vehicles say
-- column model: as the vehicles say
-- column day: UTC
-- column vehicles: how many were
-- column active_h: hours of all of them together
SELECT
  vehicles.fleet, vehicles.model, CAST(at_ns(active.day_ns) AS DATE) AS day,
  count(*) AS vehicles, CAST(sum(active.stretches) AS BIGINT) / 6E0 AS active_h
FROM (
  SELECT device, at_ns - at_ns % 86400000000000 AS day_ns, count(*) AS stretches
  FROM (
    SELECT device, at_ns - at_ns % 600000000000 AS at_ns
    FROM status GROUP BY 1, 2 HAVING sum(total) / sum(n) < 1
  ) AS well
  GROUP BY 1, 2
) AS active
LEFT JOIN vehicles ON vehicles.device = active.device
GROUP BY vehicles.fleet, vehicles.model, active.day_ns
ORDER BY day, vehicles.fleet, vehicles.model
