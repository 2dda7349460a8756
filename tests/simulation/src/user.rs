//! The user: wishes for VMs, moves and deletions, and repeats a wish that was not answered.

use berth_domain::id::{RequestId, TimeMs};
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::operation::{Kind, Operation};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::{TimeoutAction, TransferOverrides};

use crate::asker::{Numbers, Out, Timer};
use crate::chance::Chance;
use crate::packet::{CallNumber, Node, Packet, Wish};

/// How long to wait before a wish is repeated.
const PATIENCE_MS: u64 = 6_000;
/// How often a wish is uttered before the user gives up; its outcome is unknown then.
const TRIES_MAX: u32 = 8;

/// One wish and what became of it.
#[derive(Debug)]
pub struct Uttered {
    wish: Wish,
    request: RequestId,
    tries: u32,
    call: Option<CallNumber>,
    /// When it was uttered first.
    pub first_at: Option<TimeMs>,
    /// The answer, once there was one.
    pub answer: Option<Result<Option<Operation>, Refusal>>,
}

impl Uttered {
    /// Returns whether it was answered or given up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.answer.is_some() || self.tries == TRIES_MAX
    }
}

/// The user.
#[derive(Debug)]
pub struct User {
    conductors: usize,
    hosts: Vec<HostName>,
    flavors: Vec<FlavorName>,
    vms: Vec<VmName>,
    /// In the order of their beginning.
    pub wishes: Vec<Uttered>,
}

impl User {
    /// Returns a user who utters `number` wishes in the next `time_ms` milliseconds.
    pub fn new(
        number: usize,
        time_ms: u64,
        conductors: usize,
        hosts: &[HostName],
        flavors: &[FlavorName],
        chance: &mut Chance,
    ) -> (Self, Vec<Out>) {
        let vms = (0..number.div_ceil(4))
            .map(|i| VmName::new(&format!("vm{i}")).expect("a good name"))
            .collect();
        let mut user = Self {
            conductors,
            hosts: hosts.to_vec(),
            flavors: flavors.to_vec(),
            vms,
            wishes: Vec::new(),
        };
        let outs = user.draw(number, 3_000, time_ms, chance);
        (user, outs)
    }

    /// Draws wishes, with the times in which they are uttered.
    pub fn draw(
        &mut self,
        number: usize,
        from_ms: u64,
        to_ms: u64,
        chance: &mut Chance,
    ) -> Vec<Out> {
        let mut times: Vec<u64> = (0..number)
            .map(|_| chance.between(from_ms, to_ms))
            .collect();
        times.sort_unstable();
        let mut outs = Vec::new();
        let vms = self.vms.clone();
        for (index, time) in times.into_iter().enumerate() {
            // Every VM is booted before it is moved, as a rule.
            let vm = match vms.get(index) {
                Some(vm) => vm.clone(),
                None => chance.pick(&vms).expect("there are VMs").clone(),
            };
            let host = chance
                .percent(30)
                .then(|| chance.pick(&self.hosts).expect("there are hosts").clone());
            let wish = match (index < vms.len(), chance.between(1, 10)) {
                (true, _) | (false, 1) => {
                    let flavor = chance.pick(&self.flavors).expect("there are flavors");
                    Wish::Boot(vm, flavor.clone(), host)
                }
                (false, 2) => Wish::Delete(vm),
                (false, 3..=6) => Wish::Migrate(vm, host, transfer(chance)),
                (false, 7) if chance.percent(20) => {
                    let host = chance.pick(&self.hosts).expect("there are hosts");
                    Wish::Drain(host.clone(), chance.percent(50))
                }
                (false, _) => still(vm, host, &self.flavors, chance),
            };
            outs.push(Out::Timer(time, Timer::Wish(self.wishes.len())));
            self.remember(wish, chance);
        }
        outs
    }

    fn remember(&mut self, wish: Wish, chance: &mut Chance) {
        self.wishes.push(Uttered {
            wish,
            request: RequestId(chance.uuid()),
            tries: 0,
            call: None,
            first_at: None,
            answer: None,
        });
    }

    /// Utters a wish, or utters it again.
    pub fn timer(
        &mut self,
        now: TimeMs,
        timer: Timer,
        chance: &mut Chance,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        let Timer::Wish(index) = timer else {
            return Vec::new();
        };
        let uttered = &mut self.wishes[index];
        if uttered.answer.is_some() || uttered.tries == TRIES_MAX {
            return Vec::new();
        }
        uttered.tries += 1;
        uttered.first_at.get_or_insert(now);
        let call = numbers.fresh();
        uttered.call = Some(call);
        let to = Node::Conductor(chance.index(self.conductors));
        let packet = Packet::Wish(call, uttered.request, Box::new(uttered.wish.clone()));
        vec![
            Out::Send(to, packet),
            Out::Timer(PATIENCE_MS, Timer::Wish(index)),
        ]
    }

    /// Takes an answer. Now and then a migration that was granted is cancelled, or is to end soon.
    pub fn take(&mut self, packet: Packet, chance: &mut Chance) -> Vec<Out> {
        let Packet::Granted(call, granted) = packet else {
            return Vec::new();
        };
        let waiting = self
            .wishes
            .iter_mut()
            .find(|w| w.call == Some(call) && w.answer.is_none());
        let Some(uttered) = waiting else {
            return Vec::new();
        };
        let may_cancel = match uttered.wish {
            Wish::Migrate(..)
            | Wish::Boot(..)
            | Wish::ColdMigrate(..)
            | Wish::Resize(..)
            | Wish::Power(..)
            | Wish::Drain(..)
            | Wish::Unshelve(..) => true,
            Wish::Delete(_)
            | Wish::Cancel(_)
            | Wish::ForceComplete(_)
            | Wish::Uncordon(_)
            | Wish::Confirm(_)
            | Wish::Revert(_)
            | Wish::Shelve(_) => false,
        };
        let mut drained = None;
        if let Wish::Drain(host, _) = &uttered.wish {
            drained = Some(host.clone());
        }
        let may_force = matches!(uttered.wish, Wish::Migrate(..));
        let operation = granted.as_ref().as_ref().ok().and_then(|o| o.as_ref());
        let operation = operation.map(|o| o.id);
        uttered.answer = Some(*granted);
        let Some(operation) = operation else {
            return Vec::new();
        };
        let mut outs = Vec::new();
        if may_cancel && chance.percent(10) {
            outs.extend(self.wish(Wish::Cancel(operation), chance));
        }
        if let Some(host) = drained {
            // Refused while it is drained; then it may be lifted after another drain.
            self.remember(Wish::Uncordon(host), chance);
            let later = chance.between(2_000, 30_000);
            outs.push(Out::Timer(later, Timer::Wish(self.wishes.len() - 1)));
        }
        if may_force && chance.percent(10) {
            outs.extend(self.wish(Wish::ForceComplete(operation), chance));
        }
        outs
    }

    /// Wishes for something soon: also while the guest is being sent.
    fn wish(&mut self, wish: Wish, chance: &mut Chance) -> Vec<Out> {
        self.remember(wish, chance);
        vec![Out::Timer(
            chance.between(1, 2_000),
            Timer::Wish(self.wishes.len() - 1),
        )]
    }
}

/// Returns a wish for something during which the VM does not run. Many make no sense in the moment
/// in which they come.
fn still(vm: VmName, host: Option<HostName>, flavors: &[FlavorName], chance: &mut Chance) -> Wish {
    match chance.between(1, 15) {
        1 | 2 => Wish::ColdMigrate(vm, host),
        3 | 4 => {
            let flavor = chance.pick(flavors).expect("there are flavors").clone();
            Wish::Resize(vm, flavor, chance.percent(70))
        }
        5 => Wish::Confirm(vm),
        6 => Wish::Revert(vm),
        7 => Wish::Shelve(vm),
        8 | 9 => Wish::Unshelve(vm, host),
        _ => Wish::Power(vm, power(chance)),
    }
}

/// Returns something done to a VM where it is.
fn power(chance: &mut Chance) -> Kind {
    match chance.between(1, 6) {
        1 | 2 => Kind::Stop {
            timeout_ms: chance.between(0, 3_000),
        },
        3 => Kind::Start,
        4 => Kind::Reboot { timeout_ms: 0 },
        5 => Kind::Rebuild { images: Vec::new() },
        _ => Kind::Snapshot {
            disk: 0,
            image: format!("image{}.raw", chance.between(1, 1_000_000)),
        },
    }
}

/// Returns how a guest is to be sent: now and then slower than the patience is long, so that what is
/// done to overdue transfers is done.
fn transfer(chance: &mut Chance) -> TransferOverrides {
    if !chance.percent(20) {
        return TransferOverrides::default();
    }
    let post_copy = chance.percent(50);
    let actions = [TimeoutAction::Abort, TimeoutAction::ForceComplete];
    TransferOverrides {
        bandwidth_mib_per_s_max: u32::try_from(chance.between(20, 200)).ok(),
        post_copy: Some(post_copy),
        timeout_ms: Some(chance.between(1_000, 5_000)),
        timeout_action: chance.pick(&actions).copied(),
        ..TransferOverrides::default()
    }
}
