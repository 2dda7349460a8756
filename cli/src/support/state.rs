//! The state in a bundle: a full backup without secrets, and with hashes for names where requested.
//!
//! ```text
//!   backup ─▶ rows ─▶ redact each ─▶ rows under their keys ─▶ state, checked ─▶ backup
//! ```
//!
//! Not here: what is removed (`redact`).
//!
//! Invariant: the state that is written is whole: every invariant is checked, and its hash is its own.

use anyhow::{Context as _, bail};
use berth_backup::{Item, Reader, Writer};
use berth_codec::{decode_value, encode_row};
use berth_replication::Machine as _;
use berth_scheduler::Machine;
use berth_scheduler::machine::Level;
use berth_store::{Row, StateHash};

use super::messages;
use super::redact::Redactor;

/// Returns a full backup without what may not leave the cluster.
///
/// # Errors
///
/// The file is no full backup, or its state is none without what was removed.
pub(super) fn redacted(file: &[u8], redactor: &Redactor) -> anyhow::Result<Vec<u8>> {
    let mut reader = Reader::new(file).context("the backup did not arrive whole")?;
    let mut header = reader.header().clone();
    let kind = messages::message("berth.state.v1.Row");
    let mut rows: Vec<Row> = Vec::new();
    while let Some(item) = reader.next().context("the backup did not arrive whole")? {
        let Item::Row(row) = item else {
            bail!("the backup is an increment");
        };
        let mut message = messages::decode(&kind, &row.value)?;
        redactor.redact(&mut message);
        let row = decode_value(messages::encode(&message).into());
        rows.push(encode_row(
            &row.context("a row is none without its secrets")?,
        ));
    }
    reader.finish().context("the backup did not arrive whole")?;
    let index = header.end.index;
    let machine = Machine::from_rows(Level::default(), rows.into_iter(), index);
    let machine = machine.context("the rows are no state without their secrets")?;
    if let Err(violation) = machine.check() {
        bail!("the state without its secrets breaks an invariant: {violation}");
    }
    let mut count = 0;
    let hash = StateHash::of_rows(machine.rows().inspect(|_| count += 1));
    header.end.state_hash = hash.to_bytes().into();
    header.end.rows = count;
    header.redacted = true;
    for member in &mut header.membership.members {
        member.address = redactor.address(&member.address);
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header)?;
    for row in machine.rows() {
        writer.row(&row)?;
    }
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use berth_backup::{Chain, Header, Kind, Place};
    use berth_codec::table_name;
    use berth_domain::version::ServiceVersion;
    use berth_state::State;
    use berth_testkit::state::draw;
    use berth_testkit::state::scale::{self, Size};
    use proptest::prelude::*;

    use super::*;

    fn full(state: &State) -> Vec<u8> {
        let machine = Machine::new(state.clone());
        let mut rows = 0;
        let hash = StateHash::of_rows(machine.rows().inspect(|_| rows += 1));
        let header = Header {
            cluster_id: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
            cluster_version: state.header().cluster_version.0,
            member_id: 1,
            kind: Kind::Full.into(),
            end: Place {
                index: state.revision(),
                term: 1,
                state_hash: hash.to_bytes().into(),
                rows,
            },
            revision: state.revision(),
            ..Header::default()
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, header).expect("a header");
        for row in machine.rows() {
            writer.row(&row).expect("a row");
        }
        writer.finish().expect("a state");
        bytes
    }

    /// Redacts a state in each way, checks that the result verifies, and returns the tables that it has.
    fn check(state: &State) -> BTreeSet<&'static str> {
        let file = full(state);
        let names = state.vms().keys().map(ToString::to_string);
        let names: Vec<String> = names.filter(|name| name.len() > 4).collect();
        for redactor in [Redactor::default(), Redactor::new(Some([3; 32]))] {
            let redacted = redacted(&file, &redactor).unwrap_or_else(|error| panic!("{error:#}"));
            let mut chain = Chain::<Machine>::new(Level::default());
            let reader = Reader::new(&*redacted).expect("a header");
            chain.add(reader).expect("it is sound");
            let verified = chain.finish().expect("it verifies");
            let shown = verified.machine.state();
            assert_eq!(shown.vms().len(), state.vms().len());
            assert_eq!(shown.hosts().len(), state.hosts().len());
            if redactor.hashes_names() {
                let text = String::from_utf8_lossy(&redacted).into_owned();
                let left: Vec<_> = names
                    .iter()
                    .filter(|name| text.contains(&***name))
                    .collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
        let rows = Machine::new(state.clone()).rows().collect::<Vec<_>>();
        rows.iter().filter_map(|row| table_name(&row.key)).collect()
    }

    #[test]
    fn a_large_state_stays_whole() {
        let tables = check(&scale::state(Size {
            hosts: 10,
            vms_per_host: 20,
            seed: 3,
            version: ServiceVersion::CURRENT,
        }));
        assert!(
            tables.contains("vms") && tables.contains("claims"),
            "{tables:?}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Goal: whatever commands have made of a state, it is one without its secrets and names, too.
        #[test]
        fn every_state_stays_whole(draws in draw::draws()) {
            let (world, _) = draw::play(&draws);
            check(&world.state);
        }
    }
}
