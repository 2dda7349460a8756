//! Hosts that die for good: with their guests, fenced, and not back before the story ends.

use berth_decide::Action;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::TimeMs;
use berth_domain::name::HostName;
use berth_domain::vm;
use berth_state::command::Command;

use super::faults::Fault;
use super::stories::Act;
use super::world::{World, vm as name_of_vm};

impl World {
    /// Returns who dies by a fault at a call of this host.
    pub(crate) fn dying(&self, fault: Fault, called: &HostName) -> Vec<HostName> {
        let vm = name_of_vm();
        let claims = self.state.claims().values();
        let claims = claims.filter(|claim| claim.vm == vm && claim.is_in_use());
        let others = claims
            .map(|claim| &claim.host)
            .filter(|host| *host != called);
        let one = match fault {
            Fault::HostDies | Fault::BothHostsDie => Some(called),
            Fault::OtherHostDies
            | Fault::Refuse
            | Fault::Cut(_)
            | Fault::LostAnswer
            | Fault::Late(_)
            | Fault::AgentDies(_)
            | Fault::AgentDiesAfter
            | Fault::Cancel
            | Fault::LeaderChanges
            | Fault::NobodyLeads
            | Fault::HostsCut => None,
        };
        let others = others.filter(|_| fault != Fault::HostDies);
        one.into_iter().chain(others).cloned().collect()
    }

    /// A host dies with its guests, and is fenced.
    pub(crate) fn die(&mut self, host: &HostName) {
        if !self.dead.insert(host.clone()) {
            return;
        }
        self.agents.get_mut(host).expect("an agent").crash();
        self.down.remove(host);
        self.hypervisors.crash_host(TimeMs(self.now), host);
        let view = self.state.host(host).expect("a host");
        let incarnation = view.host.report.incarnation;
        let commands = [
            Command::SetLiveness {
                host: host.clone(),
                liveness: Liveness::Down,
            },
            Command::FenceHost {
                host: host.clone(),
                method: Method::Operator,
                by: "test".to_owned(),
                output: String::new(),
                incarnation,
            },
        ];
        for command in commands {
            self.command(command).expect("it is fenced");
        }
    }

    /// A VM that is to run, and whose host died meanwhile, runs elsewhere when it is evacuated.
    pub(crate) fn check_can_be_evacuated(&mut self) {
        let on_dead = |vm: &vm::Vm| vm.host.as_ref().is_some_and(|h| self.dead.contains(h));
        let record = self.state.vm(&name_of_vm());
        let state = record.filter(|vm| on_dead(vm)).map(|vm| vm.state);
        match state {
            Some(vm::State::Active | vm::State::Stopped) => {}
            // One is lost half-way through a rebuild, the other is to be confirmed or reverted first.
            Some(vm::State::Error | vm::State::Resized) | None => return,
            Some(
                vm::State::Building
                | vm::State::Migrating
                | vm::State::Deleting
                | vm::State::Shelved,
            ) => {
                panic!("on a dead host: {record:#?}")
            }
        }
        self.be_whole();
        if self.apart {
            // Its disks are where nothing can be read from.
            let evacuation = self.cold_move(false, true);
            let refused = self.ask(Action::ScheduleMove(evacuation));
            let refusal = refused.expect_err("it has disks");
            assert_eq!(refusal.reason, "NO_VALID_HOST", "{refusal}");
            assert!(
                refusal.to_string().contains("without its disks"),
                "{refusal}"
            );
            return;
        }
        self.begin(Act::Evacuate);
        self.run(None);
        self.pass(5_000);
        self.await_erasures();
        self.check_rest();
        let vm = self.state.vm(&name_of_vm()).expect("it is not deleted");
        let host = vm.host.as_ref().expect("it is on a host");
        assert!(!self.dead.contains(host), "{vm:#?}");
        assert_eq!(Some(vm.state), state);
    }
}
