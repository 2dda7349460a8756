//! Goal: two VMs that are to be on different hosts never come together, also when both are moved at
//! the same moment. Method: two sagas side by side, stepped in an order that a seed gives, live or
//! cold, between three or four hosts, with some destinations that refuse. The state's own check, which
//! runs after every command, says that no two members of a hard anti-affinity group hold claims on
//! one host; here it is asked where the guests really are.

use std::env;

use berth_decide::Action;
use berth_domain::name::{FlavorName, HostName, ServerGroupName, VmName};
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::transfer::TransferOverrides;
use berth_saga::{Event, Saga};
use berth_simulation::packet::Wish;
use berth_simulation::wish;
use berth_state::command::Command;

use super::faults::{FAULTS, Fault, Script, Site};
use super::world::{World, lease};

/// How many seeds an ordinary test run goes through; others: `BERTH_RACES=10000`.
const RACES: u64 = 600;

fn vm(name: &str) -> VmName {
    VmName::new(name).expect("a name")
}

fn boot(world: &mut World, name: &str, group: &ServerGroupName) {
    let flavor = FlavorName::new("one").expect("a name");
    let wish = Wish::Boot(vm(name), flavor, None);
    let (_, mut request) = wish::request(&wish, lease(), &mut world.chance);
    if let Action::ScheduleVm(scheduled) = &mut request {
        scheduled.hints.server_group = Some(group.clone());
    }
    let begun = world.ask(request);
    world.attend(begun);
    world.run(None);
}

/// One saga of two.
struct Runner {
    operation: berth_domain::id::OperationId,
    saga: Saga,
    event: Option<Event>,
}

fn begin(world: &mut World, name: &str) -> Option<Runner> {
    let wish = match world.chance.percent(70) {
        true => Wish::Migrate(vm(name), None, TransferOverrides::default()),
        false => Wish::ColdMigrate(vm(name), None),
    };
    let (_, request) = wish::request(&wish, lease(), &mut world.chance);
    let begun = world.ask(request);
    // Where there is no third host it is refused.
    begun.is_ok().then(|| {
        world.attend(begun);
        Runner {
            operation: world.operation,
            saga: world.take_over(),
            event: Some(Event::Begin),
        }
    })
}

fn host_of(world: &World, name: &str) -> Option<HostName> {
    world.state.vm(&vm(name)).and_then(|vm| vm.host.clone())
}

fn race(seed: u64) -> usize {
    let hosts = 3 + (seed % 2) as usize;
    let mut world = World::with_hosts(hosts, seed);
    let name = ServerGroupName::new("apart").expect("a name");
    let group = ServerGroup::new(name.clone(), GroupPolicy::AntiAffinity, None).expect("a group");
    world
        .command(Command::CreateServerGroup(group))
        .expect("it is made");
    boot(&mut world, "a", &name);
    boot(&mut world, "b", &name);
    let fault = world.chance.pick(&FAULTS).copied().expect("faults");
    // A cancelled or refused move is one that has to find its way back.
    let sites = [
        berth_domain::operation::Step::FitDestination,
        berth_domain::operation::Step::StartDestination,
    ];
    let step = world.chance.pick(&sites).copied().expect("sites");
    if fault != Fault::HostsCut {
        let site = Site { step, undo: false };
        world.script(&[Script { site, fault }]);
    }
    let mut runners: Vec<Runner> = Vec::new();
    for name in ["a", "b"] {
        runners.extend(begin(&mut world, name));
    }
    let begun = runners.len();
    while !runners.is_empty() {
        let turn = world.chance.index(runners.len());
        let runner = &mut runners[turn];
        world.operation = runner.operation;
        let event = runner.event.take().expect("its turn");
        let effect = runner.saga.step(event).expect("an effect");
        let asked = runner.saga.called_step();
        let site = asked.map(|(step, undo)| Site { step, undo });
        match world.perform(&effect, site) {
            Some(event) => runner.event = Some(event),
            None => drop(runners.remove(turn)),
        }
        let (a, b) = (host_of(&world, "a"), host_of(&world, "b"));
        assert!(a.is_some() && a != b, "seed {seed}: both are on {a:?}");
    }
    world.script(&[]);
    world.check_end();
    begun
}

#[test]
fn two_that_are_to_be_apart_never_meet() {
    let races = env::var("BERTH_RACES").ok().and_then(|n| n.parse().ok());
    let races = races.unwrap_or(RACES);
    let both = (1..=races).filter(|seed| race(*seed) == 2).count();
    println!("{races} races, in {both} of them both were on their way at the same time");
    assert!(both > 0);
}
