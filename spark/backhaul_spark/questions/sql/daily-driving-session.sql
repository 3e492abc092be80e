-- How long a vehicle drives without a stop, the mean of the sessions that began on a day: stretches of ten minutes with a mean speed above `driving`.
-- tsbs: avg-daily-driving-session
-- reads: driving, limits
-- column device: the vehicle
-- column day: UTC, on which the sessions began
-- column sessions: how many
-- column session_min: mean minutes of one
SELECT
  device, CAST(at_ns(at_ns - at_ns % 86400000000000) AS DATE) AS day,
  count(*) AS sessions, avg(CAST(until_ns - at_ns AS DOUBLE) / 60000000000) AS session_min
FROM (
  SELECT device, at_ns, drives, lead(at_ns) OVER (PARTITION BY device ORDER BY at_ns) AS until_ns
  FROM (
    SELECT device, at_ns, drives, lag(drives) OVER (PARTITION BY device ORDER BY at_ns) AS drove
    FROM (SELECT device, at_ns, speed > limits.driving AS drives FROM driving CROSS JOIN limits) AS each_
  ) AS beside
  WHERE drives <> drove
) AS changes
WHERE drives AND until_ns IS NOT NULL
GROUP BY 1, 2
ORDER BY 1, 2
