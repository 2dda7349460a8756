#!/usr/bin/env python3
"""Fills the database of a real Placement with resource providers.

  fill.py URL-OF-THE-DATABASE < providers

One line of JSON for each provider, parents before children: what Placement would write if the
same came over its API, which takes four calls and a tenth of a second for each provider. Classes,
traits and the schema must be there already.
"""
import json
import sys

import sqlalchemy as sa

# Rows of one statement; sqlite takes 32,766 values.
BATCH = 2000


def table(name, columns):
    return sa.table(name, *(sa.column(column) for column in columns.split()))


PROVIDERS = table(
    "resource_providers",
    "id uuid name generation root_provider_id parent_provider_id created_at updated_at",
)
INVENTORIES = table(
    "inventories",
    "resource_provider_id resource_class_id total reserved min_unit max_unit step_size"
    " allocation_ratio created_at updated_at",
)
TRAITS = table("resource_provider_traits", "trait_id resource_provider_id created_at")
MEMBERS = table("resource_provider_aggregates", "resource_provider_id aggregate_id created_at")
AGGREGATES = table("placement_aggregates", "uuid created_at")


class Filling:
    def __init__(self, connection):
        self.connection = connection
        self.now = sa.func.now()
        self.rows = {each: [] for each in (PROVIDERS, INVENTORIES, TRAITS, MEMBERS)}
        self.classes = self.ids("select name, id from resource_classes")
        self.traits = self.ids("select name, id from traits")
        self.aggregates = self.ids("select uuid, id from placement_aggregates")
        self.providers = self.ids("select uuid, id from resource_providers")

    def ids(self, query):
        return {name: number for name, number in self.connection.execute(sa.text(query))}

    def aggregate(self, uuid):
        if uuid not in self.aggregates:
            self.connection.execute(AGGREGATES.insert().values(uuid=uuid, created_at=self.now))
            self.aggregates = self.ids("select uuid, id from placement_aggregates")
        return self.aggregates[uuid]

    def add(self, provider):
        number = len(self.providers) + 1
        self.providers[provider["uuid"]] = number
        parent = provider["parent"]
        self.rows[PROVIDERS].append(
            {
                "id": number,
                "uuid": provider["uuid"],
                "name": provider["name"],
                "generation": 3,
                "root_provider_id": self.providers[provider["root"]],
                "parent_provider_id": parent and self.providers[parent],
            }
        )
        for name, inventory in provider["inventories"].items():
            of = {"resource_provider_id": number, "resource_class_id": self.classes[name]}
            self.rows[INVENTORIES].append({"min_unit": 1, "step_size": 1, **of, **inventory})
        for name in provider["traits"]:
            row = {"trait_id": self.traits[name], "resource_provider_id": number}
            self.rows[TRAITS].append(row)
        for uuid in provider["aggregates"]:
            row = {"resource_provider_id": number, "aggregate_id": self.aggregate(uuid)}
            self.rows[MEMBERS].append(row)

    def write(self):
        for where, rows in self.rows.items():
            times = {name: self.now for name in ("created_at", "updated_at") if name in where.c}
            for at in range(0, len(rows), BATCH):
                values = [{**row, **times} for row in rows[at : at + BATCH]]
                self.connection.execute(where.insert().values(values))


def main():
    engine = sa.create_engine(sys.argv[1])
    with engine.begin() as connection:
        filling = Filling(connection)
        for line in sys.stdin:
            filling.add(json.loads(line))
        filling.write()
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(sa.text("analyze"))
            return
        for name in ("resource_providers", "inventories", TRAITS.name, MEMBERS.name):
            connection.execute(sa.text(f"analyze table {name}")).all()


main()
