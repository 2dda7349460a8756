//! Messages of a watch: snapshots, changes, and watches that break off.
//!
//! Goal: what is shown is always complete up to one revision, and what may be outdated is marked.

use std::time::Duration;

use berth_cli::top::feed::{Connection, Feed};
use berth_domain::event::{Change, Event, Record};
use berth_domain::version::ServiceVersion;
use berth_proto::event::v1::WatchResponse;
use berth_proto::event::v1::watch_response::Phase;
use berth_state::State;
use berth_testkit::state::scale::{Size, state};

use super::records;

fn some_state() -> State {
    state(Size {
        hosts: 2,
        vms_per_host: 3,
        seed: 1,
        version: ServiceVersion::CURRENT,
    })
}

fn message(phase: Phase, revision: u64, events: Vec<Event>) -> WatchResponse {
    WatchResponse {
        phase: phase.into(),
        revision,
        events: events.iter().map(Into::into).collect(),
    }
}

fn event(revision: u64, record: Record) -> Event {
    Event {
        revision,
        change: Change::Put(record),
    }
}

fn snapshot(feed: &mut Feed, revision: u64, all: &[Record]) {
    feed.opened(0);
    for record in all {
        let events = vec![event(revision, record.clone())];
        feed.take(message(Phase::Snapshot, 0, events)).unwrap();
    }
}

#[test]
fn a_snapshot_is_shown_as_a_whole() {
    let all: Vec<Record> = records(&some_state()).into_values().collect();
    let mut feed = Feed::default();
    snapshot(&mut feed, 7, &all);
    assert_eq!(feed.model().record_count(), 0, "it is not complete");
    assert_eq!(*feed.connection(), Connection::Listing(all.len()));
    feed.take(message(Phase::InStep, 7, Vec::new())).unwrap();
    assert_eq!(feed.model().record_count(), all.len());
    assert_eq!((feed.revision(), feed.is_old()), (7, false));
    // The schedulers do not retain the changes any more: a snapshot of fewer records, beside the old ones.
    feed.lost(Duration::from_secs(5), "h:1".to_owned(), "gone".to_owned());
    snapshot(&mut feed, 90, &all[..2]);
    assert_eq!(feed.model().record_count(), all.len(), "still the old ones");
    assert!(feed.is_old());
    feed.take(message(Phase::InStep, 90, Vec::new())).unwrap();
    assert_eq!(feed.model().record_count(), 2);
    assert_eq!((feed.revision(), feed.is_old()), (90, false));
}

#[test]
fn half_a_revision_is_not_shown() {
    let all: Vec<Record> = records(&some_state()).into_values().collect();
    let mut feed = Feed::default();
    snapshot(&mut feed, 7, &[]);
    feed.take(message(Phase::InStep, 7, Vec::new())).unwrap();
    let half = vec![event(8, all[0].clone())];
    feed.take(message(Phase::Changes, 7, half.clone())).unwrap();
    assert_eq!((feed.model().record_count(), feed.revision()), (0, 7));
    // The watch breaks off: the next one sends the revision again.
    feed.lost(Duration::from_secs(5), "h:1".to_owned(), "gone".to_owned());
    feed.lost(Duration::from_secs(9), "h:2".to_owned(), "gone".to_owned());
    let Connection::Lost { since, trying, .. } = feed.connection() else {
        panic!("{:?}", feed.connection());
    };
    assert_eq!((since.as_secs(), trying.as_str()), (5, "h:2"));
    feed.opened(7);
    assert!(feed.is_old(), "it is catching up");
    feed.take(message(Phase::Changes, 8, half)).unwrap();
    assert_eq!((feed.model().record_count(), feed.revision()), (1, 8));
    feed.take(message(Phase::InStep, 8, Vec::new())).unwrap();
    assert!(!feed.is_old());
}

/// Goal: a list that breaks off within a snapshot begins again, and nothing of it is shown.
#[test]
fn a_snapshot_that_breaks_off_is_dropped() {
    let all: Vec<Record> = records(&some_state()).into_values().collect();
    let mut feed = Feed::default();
    snapshot(&mut feed, 7, &all);
    feed.lost(Duration::from_secs(5), "h:1".to_owned(), "gone".to_owned());
    snapshot(&mut feed, 8, &all[..1]);
    feed.take(message(Phase::InStep, 8, Vec::new())).unwrap();
    assert_eq!(feed.model().record_count(), 1);
}
