//! Which end of a migration each claim is on.
//!
//! The owner of a claim does not say it. While a VM is moved, the migration owns the claim on the
//! destination; once the VM is resized and waits to be confirmed or reverted, the migration owns the
//! one that is kept on the source, and the guest runs on the destination. The record of the
//! migration names both claims.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{Claim, Owner};
use berth_domain::id::{ClaimId, MigrationId};
use berth_domain::migration::Migration;
use berth_domain::refusal::{Code, Refusal};

use crate::migration;
use crate::session::Session;

/// One end of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where the guest comes from.
    Source,
    /// Where it goes, or has gone.
    Destination,
}

/// The claims of migrations, by their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides(BTreeMap<ClaimId, (Side, MigrationId)>);

impl Sides {
    /// Returns the ends of these migrations.
    #[must_use]
    pub fn new(migrations: &[Migration]) -> Self {
        let mut sides = BTreeMap::new();
        for migration in migrations {
            let id = migration.id;
            sides.insert(migration.source_claim, (Side::Source, id));
            let destination = migration.destination_claim;
            sides.extend(destination.map(|claim| (claim, (Side::Destination, id))));
        }
        Self(sides)
    }

    /// Returns the ends of the migrations that own any of these claims. One that is no longer on
    /// record leaves its claim without an end.
    ///
    /// # Errors
    ///
    /// The scheduler's refusal.
    pub async fn of(session: &Session, claims: &[Claim]) -> anyhow::Result<Self> {
        let owners = claims.iter().filter_map(|claim| match claim.owner {
            Owner::Migration(id) => Some(id),
            Owner::Vm => None,
        });
        let mut migrations = Vec::new();
        for id in owners.collect::<BTreeSet<MigrationId>>() {
            match migration::get(session, &id.to_string()).await {
                Ok(migration) => migrations.push(migration),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::new(&migrations))
    }

    /// Returns the end that a claim is on, if it belongs to a migration.
    #[must_use]
    pub fn side(&self, claim: &Claim) -> Option<Side> {
        self.0.get(&claim.id).map(|(side, _)| *side)
    }

    /// Describes the end that a claim is on.
    #[must_use]
    pub fn describe(&self, claim: &Claim) -> String {
        match (self.0.get(&claim.id), &claim.owner) {
            (Some((Side::Source, id)), _) => format!(", on the source of migration {id}"),
            (Some((Side::Destination, id)), _) => {
                format!(", on the destination of migration {id}")
            }
            (None, Owner::Migration(id)) => format!(", of migration {id}"),
            (None, Owner::Vm) => String::new(),
        }
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.code == Code::NotFound)
}

#[cfg(test)]
mod tests {
    use berth_domain::id::{Generation, OperationId, TimeMs};
    use berth_domain::migration::{Kind, State};
    use berth_domain::name::{HostName, VmName};
    use berth_domain::numa::Assignment;
    use berth_domain::{claim, transfer};
    use uuid::Uuid;

    use super::*;

    const SOURCE: ClaimId = ClaimId(Uuid::from_u128(1));
    const DESTINATION: ClaimId = ClaimId(Uuid::from_u128(2));
    const MIGRATION: MigrationId = MigrationId(Uuid::from_u128(3));

    fn migration(state: State) -> Migration {
        Migration {
            id: MIGRATION,
            vm: VmName::new("a").unwrap(),
            source: HostName::new("h1").unwrap(),
            source_claim: SOURCE,
            requested: None,
            destination: Some(HostName::new("h2").unwrap()),
            destination_claim: Some(DESTINATION),
            state,
            error: None,
            assignment_before: Assignment::default(),
            assignment_after: None,
            operation: OperationId(Uuid::nil()),
            generation: Generation(1),
            created_at: TimeMs(0),
            ended_at: None,
            kind: Kind::default(),
            was_stopped: false,
            verify: true,
            resize: None,
            transfer: transfer::TransferPolicy::default(),
            hosts_tried_max: 1,
            tried: Vec::new(),
            fetches_disks: false,
        }
    }

    fn claim(id: ClaimId, owner: Owner) -> Claim {
        Claim {
            id,
            vm: VmName::new("a").unwrap(),
            owner,
            host: HostName::new("h1").unwrap(),
            state: claim::State::Active,
            resources: Default::default(),
            assignment: Assignment::default(),
            erasures: Default::default(),
            cpu: None,
        }
    }

    /// Goal: a resized VM does not show its source as its destination. Method: each state of a
    /// migration in which two claims stand, with the owners that the state machine gives them.
    #[test]
    fn the_ends_are_those_of_the_migration_for_each_owner_of_the_claims() {
        let of_migration = Owner::Migration(MIGRATION);
        for (state, source, destination) in [
            (State::Preparing, Owner::Vm, of_migration.clone()),
            (State::Running, Owner::Vm, of_migration.clone()),
            (State::Unsettled, Owner::Vm, of_migration.clone()),
            (State::Verifying, of_migration.clone(), Owner::Vm),
        ] {
            let sides = Sides::new(&[migration(state)]);
            let (from, to) = (claim(SOURCE, source), claim(DESTINATION, destination));
            assert_eq!(sides.side(&from), Some(Side::Source), "{state:?}");
            assert_eq!(sides.side(&to), Some(Side::Destination), "{state:?}");
            let expected = format!(", on the source of migration {MIGRATION}");
            assert_eq!(sides.describe(&from), expected, "{state:?}");
            let expected = format!(", on the destination of migration {MIGRATION}");
            assert_eq!(sides.describe(&to), expected, "{state:?}");
        }
    }

    #[test]
    fn without_a_record_no_end_is_named() {
        let sides = Sides::default();
        let owned = claim(SOURCE, Owner::Migration(MIGRATION));
        assert_eq!(
            sides.describe(&owned),
            format!(", of migration {MIGRATION}")
        );
        assert_eq!(sides.describe(&claim(SOURCE, Owner::Vm)), "");
    }
}
