-- How often vehicles of each model broke down: a stretch of ten minutes with a status above 0 in half of its readings, after one without.
-- tsbs: breakdown-frequency
-- reads: status, vehicles
-- column model: as the vehicles say
-- column breakdowns: how many
-- column vehicles: how many broke down
SELECT vehicles.model, count(*) AS breakdowns, count(DISTINCT next_to.device) AS vehicles
FROM (
  SELECT device, broken, lead(broken) OVER (PARTITION BY device ORDER BY at_ns) AS broken_next
  FROM (
    SELECT
      device, at_ns - at_ns % 600000000000 AS at_ns,
      sum(CASE WHEN total > 0 THEN n ELSE 0 END) / CAST(sum(n) AS DOUBLE) >= 0.5 AS broken
    FROM status GROUP BY 1, 2
  ) AS stretches
) AS next_to
LEFT JOIN vehicles ON vehicles.device = next_to.device
WHERE NOT broken AND broken_next
GROUP BY vehicles.model
ORDER BY vehicles.model
