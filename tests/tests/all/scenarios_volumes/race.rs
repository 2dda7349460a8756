//! Two controllers, and twice as many callers as there is space.

use std::collections::BTreeSet;
use std::sync::Barrier;

use berth_tests::processes::Host;
use berth_tests::processes::csi::volume_request;
use tonic::Code;

use super::*;

/// How many volumes there is space for, and how many are asked for.
const ROOM: usize = 100;
const ASKED: usize = 200;

/// Goal: exactly as many succeed as there is space, the others are told that it is exhausted, and
/// nothing leaks. Method: four hosts with space for 25 volumes each, all asked at once.
#[test]
fn as_many_succeed_as_there_is_space() {
    // 25 volumes of 4 MiB, and what the volume group itself takes.
    let host = |n| {
        Host::new(&format!("h{n}")).with_volumes(
            "sim-direct",
            &["region0:400"],
            "direct_align_mib = 16",
        )
    };
    let mut cluster = start((1..=4).map(host));
    let controllers = [cluster.add_csi_controller(), cluster.add_csi_controller()];
    let barrier = Barrier::new(ASKED);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let (csi, barrier) = (&controllers[number % 2], &barrier);
            scope.spawn(move || {
                barrier.wait();
                csi.create(&volume_request(&format!("pvc-{number}"), MIB))
            })
        };
        let asking: Vec<_> = (0..ASKED).map(ask).collect();
        asking
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    let ids: BTreeSet<&str> = answers
        .iter()
        .flatten()
        .map(|v| v.volume_id.as_str())
        .collect();
    let codes: Vec<Code> = answers
        .iter()
        .filter_map(|a| a.as_ref().err())
        .map(|s| s.code())
        .collect();
    assert_eq!(ids.len(), ROOM, "{codes:?}");
    assert_eq!(codes, vec![Code::ResourceExhausted; ASKED - ROOM]);
    let names: Vec<String> = (1..=4).map(|n| format!("h{n}")).collect();
    let made: BTreeSet<String> = names
        .iter()
        .flat_map(|name| devices(&cluster, name))
        .collect();
    assert!(made.iter().map(String::as_str).eq(ids.iter().copied()));
    let capacity = controllers[0].capacity(None).unwrap();
    assert_eq!(
        (capacity.available_capacity, capacity.maximum_volume_size),
        (0, Some(0))
    );
    for (number, id) in ids.iter().enumerate() {
        controllers[number % 2].delete(id).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    all_gone(&cluster, &names);
}
