-- The mean load of vehicles as a part of their capacity, by fleet and model.
-- tsbs: avg-load
-- reads: load_sum, vehicles
-- column fleet: as the vehicles say
-- column model: as the vehicles say
-- column load_capacity: in the unit of the series
-- column vehicles: how many
-- column part: mean of the vehicles' own means, 0 to 1
SELECT
  vehicles.fleet, vehicles.model, vehicles.load_capacity, count(*) AS vehicles,
  avg(load_sum.total / load_sum.n / nullif(vehicles.load_capacity, 0)) AS part
FROM load_sum
INNER JOIN vehicles ON vehicles.device = load_sum.device
GROUP BY vehicles.fleet, vehicles.model, vehicles.load_capacity
ORDER BY vehicles.fleet, vehicles.model, vehicles.load_capacity
