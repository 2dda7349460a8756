//! Conformance of CPU models: a guest has the CPU that it is started with wherever it moves, and does not
//! move where it cannot have it.
//!
//! Method: the best CPU that both hypervisors can give, and one that the destination cannot, by what they
//! report. Hypervisors that report no CPU are not tested: it does not matter to their guests.
//!
//! Not here: what the guest sees; a real test reads it there.

use std::sync::Arc;

use berth_domain::cpu_model::{GuestCpu, HostCpu, baseline};
use berth_domain::name::HostName;

use super::{Pair, assert_absent, assert_runs, wait_for_output};
use crate::domain::{DomainSpec, Sending};
use crate::driver::Driver;
use crate::error::Error;

/// Runs this part of the suite.
///
/// # Panics
///
/// At the first thing that a driver does not hold.
pub fn run(pair: &Pair<'_>) {
    let of = |driver: &dyn Driver| driver.cpu().expect("a hypervisor").map(Arc::new);
    let (Some(here), Some(there)) = (of(pair.source), of(pair.destination)) else {
        return;
    };
    assert!(here.is_consistent() && there.is_consistent());
    let common = common(&here, &there);
    a_guest_takes_its_cpu_along(pair, &common);
    a_guest_stays_if_the_destination_lacks_its_cpu(pair, &common, &lacking(&there));
}

/// Returns the best CPU that both can give.
fn common(here: &Arc<HostCpu>, there: &Arc<HostCpu>) -> Arc<GuestCpu> {
    let names = ["here", "there"].map(|name| HostName::new(name).expect("a valid name"));
    let cpu = baseline(names.iter().zip([here, there])).expect("a pair of one vendor");
    for host in [here, there] {
        assert_eq!(host.check(&cpu.cpu, false), Ok(()));
    }
    cpu.cpu
}

/// Returns a CPU that a hypervisor knows and cannot give.
fn lacking(host: &HostCpu) -> Arc<GuestCpu> {
    let mut lacking = host
        .models
        .iter()
        .filter(|(_, missing)| !missing.is_empty());
    let (model, _) = lacking.next().expect("no host gives every model");
    Arc::new(GuestCpu::named(model.clone()))
}

fn with(guest: &DomainSpec, cpu: &Arc<GuestCpu>) -> DomainSpec {
    DomainSpec {
        cpu: Some(cpu.clone()),
        ..guest.clone()
    }
}

fn assert_recorded(driver: &dyn Driver, guest: &DomainSpec) {
    let known = driver.domains().expect("a list");
    let known = known.iter().find(|known| known.domain.uid == guest.uid);
    assert_eq!(known.map(|known| &known.domain), Some(guest));
}

/// Checks that a guest arrives with the CPU that it was started with.
pub fn a_guest_takes_its_cpu_along(pair: &Pair<'_>, cpu: &Arc<GuestCpu>) {
    let guest = with(&(pair.guest)(16), cpu);
    let moved = (pair.moved)(&guest);
    let (source, destination) = (pair.source, pair.destination);
    source.create(&guest).expect("both can give it");
    assert_recorded(source, &guest);
    wait_for_output(pair, source, guest.uid, 0);
    destination
        .prepare_incoming(&moved, &[])
        .expect("both can give it");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    let sent = source.migrate(guest.uid, &uri, &moved, &Sending::default());
    assert_eq!(sent, Ok(()));
    source.release(guest.uid).expect("it is gone");
    assert_absent(source, guest.uid);
    assert_runs(destination, &moved);
    assert_recorded(destination, &moved);
    let end = wait_for_output(pair, destination, guest.uid, 0);
    wait_for_output(pair, destination, guest.uid, end);
    destination.destroy(guest.uid).expect("it is here");
}

/// Checks that a CPU that the destination cannot give is refused there before anything is sent, and when it
/// is sent nevertheless; and that it is not started there either.
pub fn a_guest_stays_if_the_destination_lacks_its_cpu(
    pair: &Pair<'_>,
    common: &Arc<GuestCpu>,
    lacking: &Arc<GuestCpu>,
) {
    let guest = with(&(pair.guest)(17), common);
    let moved = (pair.moved)(&guest);
    let other = with(&moved, lacking);
    let (source, destination) = (pair.source, pair.destination);
    for refused in [
        destination.create(&other),
        destination.prepare_incoming(&other, &[]),
    ] {
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert_absent(destination, guest.uid);
    }
    source.create(&guest).expect("both can give it");
    let end = wait_for_output(pair, source, guest.uid, 0);
    destination
        .prepare_incoming(&moved, &[])
        .expect("both can give it");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    let sent = source.migrate(guest.uid, &uri, &other, &Sending::default());
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    assert_runs(source, &guest);
    assert_recorded(source, &guest);
    wait_for_output(pair, source, guest.uid, end);
    destination
        .cancel_incoming(guest.uid)
        .expect("nothing arrives");
    assert_absent(destination, guest.uid);
    source.destroy(guest.uid).expect("it is here");
}
