//! How a simulated hypervisor in a process sends guests to another one, and takes them in.
//!
//! Invariant: a guest is marked as switching before the other side is requested to start it; after that
//! only the other side's reply ends it here, however often it must be queried.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState;
use berth_domain::id::VmUid;

use super::console::Console;
use super::driver::{PROGRESS_PERIOD, SOCKET_TIMEOUT, STOPPING, STORY_PERIOD, Shared, now};
use super::host::Phase;
use super::orders::Moment;
use super::post_copy::TORN;
use super::progress::{self, Underway};
use super::wire::{self, Message};
use crate::domain::{DomainSpec, Sending};
use crate::error::Error;

impl Shared {
    pub(super) fn migrate(
        &self,
        vm: VmUid,
        uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<(), Error> {
        self.check_tls(sending.tls)?;
        self.change(|host| host.begin_send(vm))?;
        {
            let mut state = self.lock();
            state.aborts.remove(&vm);
            let underway = Underway::begin(now(), self.transfer, destination, sending);
            state.underway.insert(vm, underway);
        }
        let sent = self.send(vm, uri, destination, sending.tls);
        let switching = {
            let state = self.lock();
            let phase = state.host.domains().get(&vm).map(|d| d.phase.clone());
            matches!(phase, Some(Phase::Switching { .. }))
        };
        match sent {
            Ok(()) => self.change(|host| {
                host.depart(vm);
                Ok(())
            }),
            Err(_) if switching => self.resolve(vm, uri),
            Err(error) => {
                let message = error.to_string();
                self.change(|host| {
                    host.give_up_send(now(), vm, &message);
                    Ok(())
                })?;
                Err(error)
            }
        }
    }

    /// Carries a transfer up to the other side's word that the guest runs there.
    fn send(&self, vm: VmUid, uri: &str, destination: &DomainSpec, tls: bool) -> Result<(), Error> {
        let broke = |error: io::Error| Error::refused(format!("the transfer broke: {error}"));
        let mut stream = dial(uri)?;
        let offer = Message::Offer {
            domain: Box::new(destination.clone()),
            active_percent: self.lock().host.active(vm),
            tls,
        };
        wire::send(&mut stream, &offer).map_err(broke)?;
        let answer = wire::receive(&mut stream).map_err(broke)?;
        if let Message::Refused { message } = answer {
            return Err(Error::Refused { message });
        }
        if answer != Message::Accepted {
            return Err(broke(unexpected(&answer)));
        }
        self.stream_memory(vm, &mut stream)?;
        let post_copy = self
            .lock()
            .underway
            .get(&vm)
            .is_some_and(Underway::is_post_copy);
        let console = self.change(|host| host.switch(now(), vm, uri))?;
        let go = Message::Go {
            console: Box::new(console),
            post_copy,
        };
        wire::send(&mut stream, &go).map_err(broke)?;
        let answer = wire::receive(&mut stream).map_err(broke)?;
        if answer != Message::Arrived {
            return Err(broke(unexpected(&answer)));
        }
        if post_copy && self.follow(vm, &mut stream).is_err() {
            self.change(|host| {
                host.tear(now(), vm);
                Ok(())
            })?;
            return Err(Error::refused(TORN));
        }
        Ok(())
    }

    /// Sends the memory after a guest that runs on the other side already.
    fn follow(&self, vm: VmUid, stream: &mut TcpStream) -> io::Result<()> {
        loop {
            self.go_on().map_err(io::Error::other)?;
            let mut state = self.lock();
            if state.orders.take_break(vm) || state.stopping {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if !state.orders.is_held(Moment::PostCopy) {
                break;
            }
            drop(self.changed.wait_timeout(state, STORY_PERIOD));
            wire::send(stream, &Message::Progress)?;
        }
        wire::send(stream, &Message::Done)?;
        let answer = wire::receive(stream)?;
        if answer != Message::Arrived {
            return Err(unexpected(&answer));
        }
        Ok(())
    }

    /// Sends progress until the transfer has taken its time, or is to be broken off.
    fn stream_memory(&self, vm: VmUid, stream: &mut TcpStream) -> Result<(), Error> {
        loop {
            self.go_on()?;
            let state = self.lock();
            let left = state
                .underway
                .get(&vm)
                .map_or(Duration::ZERO, |u| u.left(now()));
            let period = if state.story.is_some() {
                STORY_PERIOD
            } else {
                PROGRESS_PERIOD
            };
            let held = state.orders.is_held(Moment::Transfer);
            let wait = if held { period } else { left.min(period) };
            let (mut state, _) = self
                .changed
                .wait_timeout_while(state, wait, |s| {
                    let forced = s.underway.get(&vm).is_none_or(Underway::is_forced);
                    !s.stopping && !s.aborts.contains(&vm) && !forced
                })
                .unwrap_or_else(PoisonError::into_inner);
            if state.orders.take_break(vm) {
                return Err(Error::refused("the transfer broke: the connection was cut"));
            }
            if state.aborts.remove(&vm) {
                return Err(Error::Aborted { vm });
            }
            if state.stopping {
                return Err(Error::refused(STOPPING));
            }
            let underway = state.underway.get(&vm);
            let left = underway.map_or(Duration::ZERO, |u| u.left(now()));
            // An order to end comes before an order to hold.
            let forced = underway.is_none_or(Underway::is_forced);
            let held = state.orders.is_held(Moment::Transfer) && !forced;
            drop(state);
            wire::send(stream, &Message::Progress)
                .map_err(|error| Error::refused(format!("the transfer broke: {error}")))?;
            if left.is_zero() && !held {
                return Ok(());
            }
        }
    }

    /// Queries the other side until it returns the outcome of a guest that was being switched.
    pub(super) fn resolve(&self, vm: VmUid, uri: &str) -> Result<(), Error> {
        loop {
            match query(vm, uri) {
                Ok(DomainState::Running | DomainState::MigratingOut | DomainState::Stopped) => {
                    return self.change(|host| {
                        host.depart(vm);
                        Ok(())
                    });
                }
                Ok(DomainState::Absent | DomainState::Prepared) => {
                    let why = "the destination did not get the guest";
                    self.change(|host| {
                        host.give_up_send(now(), vm, why);
                        Ok(())
                    })?;
                    return Err(Error::refused(why));
                }
                Ok(DomainState::PostCopyBroken) => {
                    self.change(|host| {
                        host.tear(now(), vm);
                        Ok(())
                    })?;
                    return Err(Error::refused(TORN));
                }
                // It has not noticed yet that the connection broke, or cannot be reached.
                Ok(DomainState::MigratingIn | DomainState::Starting | DomainState::Paused)
                | Err(_) => {}
            }
            let state = self.lock();
            let (state, _) = self
                .changed
                .wait_timeout_while(state, PROGRESS_PERIOD, |s| !s.stopping)
                .unwrap_or_else(PoisonError::into_inner);
            let released = !state.host.domains().contains_key(&vm);
            if state.stopping || released {
                return Err(Error::Unreachable {
                    message: format!("{uri} did not report whether guest {vm} arrived"),
                });
            }
        }
    }

    pub(super) fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        prepare(&stream)?;
        let first = wire::receive(&mut stream)?;
        if let Message::Query { vm } = first {
            let state = self.lock().host.status(vm).state;
            return wire::send(&mut stream, &Message::Has { state });
        }
        let Message::Offer {
            domain,
            active_percent,
            tls,
        } = first
        else {
            return Err(unexpected(&first));
        };
        let begun = self.check_tls(tls).and_then(|()| {
            self.change(|host| {
                host.begin_receive(&domain)?;
                host.set_active(domain.uid, active_percent);
                Ok(())
            })
        });
        if let Err(error) = begun {
            let message = error.to_string();
            return wire::send(&mut stream, &Message::Refused { message });
        }
        let vm = domain.uid;
        let memory = domain.spec.flavor.memory_mib << 20;
        let begun = Instant::now();
        let received = self.receive(vm, &mut stream);
        if let Ok(switch) = received {
            let active_percent = active_percent.unwrap_or(0);
            let arrival = progress::arrival(memory, active_percent, begun.elapsed(), switch);
            self.arrivals.push(arrival);
        }
        if received.is_err() {
            let _ = self.change(|host| {
                host.give_up_receive(vm);
                host.tear(now(), vm);
                Ok(())
            });
        }
        received.map(drop)
    }

    /// Takes a guest in, and returns how long its switch took.
    fn receive(&self, vm: VmUid, stream: &mut TcpStream) -> io::Result<Duration> {
        wire::send(stream, &Message::Accepted)?;
        let mut message = Message::Progress;
        while message == Message::Progress {
            message = wire::receive(stream)?;
        }
        let Message::Go { console, post_copy } = message else {
            return Err(unexpected(&message));
        };
        let stopped = Instant::now();
        if post_copy {
            return self.pull(vm, stream, *console, stopped);
        }
        self.change(|host| host.arrive(now(), vm, *console))
            .map_err(io::Error::other)?;
        let switch = stopped.elapsed();
        // The guest runs here: whether the other side receives it does not matter.
        let _ = wire::send(stream, &Message::Arrived);
        Ok(switch)
    }

    /// Lets a guest go on whose memory follows; without all of it, it is torn.
    fn pull(
        &self,
        vm: VmUid,
        stream: &mut TcpStream,
        console: Console,
        stopped: Instant,
    ) -> io::Result<Duration> {
        self.change(|host| host.pull(now(), vm, console))
            .map_err(io::Error::other)?;
        let switch = stopped.elapsed();
        wire::send(stream, &Message::Arrived)?;
        let mut message = Message::Progress;
        while message == Message::Progress {
            message = wire::receive(stream)?;
        }
        if message != Message::Done {
            return Err(unexpected(&message));
        }
        self.change(|host| host.pulled(vm))
            .map_err(io::Error::other)?;
        let _ = wire::send(stream, &Message::Arrived);
        Ok(switch)
    }
}

fn unexpected(message: &Message) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{message:?} was not expected"),
    )
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))
}

pub(super) fn dial(uri: &str) -> Result<TcpStream, Error> {
    let no_route = |why: String| Error::refused(format!("{uri} cannot be reached: {why}"));
    let address = uri
        .strip_prefix("sim+tcp://")
        .ok_or_else(|| no_route("it does not begin with sim+tcp://".to_owned()))?;
    let address = address
        .to_socket_addrs()
        .map_err(|error| no_route(error.to_string()))?
        .next()
        .ok_or_else(|| no_route("it has no address".to_owned()))?;
    let stream = TcpStream::connect_timeout(&address, SOCKET_TIMEOUT)
        .map_err(|error| no_route(error.to_string()))?;
    prepare(&stream).map_err(|error| no_route(error.to_string()))?;
    Ok(stream)
}

fn query(vm: VmUid, uri: &str) -> Result<DomainState, Error> {
    let broke = |error: io::Error| Error::refused(error.to_string());
    let mut stream = dial(uri)?;
    wire::send(&mut stream, &Message::Query { vm }).map_err(broke)?;
    let answer = wire::receive(&mut stream).map_err(broke)?;
    let Message::Has { state } = answer else {
        return Err(broke(unexpected(&answer)));
    };
    Ok(state)
}
