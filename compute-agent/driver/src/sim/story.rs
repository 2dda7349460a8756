//! Events injected into a simulated hypervisor from a file: for tests and for trying things out.
//!
//! ```text
//! other 5b0c7e0a-0000-4000-8000-000000000001 by-hand    a domain appears that Berth did not make
//! crash web1                                            the guest of this name stops by itself
//! shutdown web1                                         it shuts itself down
//! lose web1                                             the hypervisor forgets the guest
//! take 0 2048 100             another process has so many pages of so many KiB of this cell, from now on
//! break web1                  the connection over which the guest is sent breaks, now or when it is
//! refuse prepare 2            the next calls of this kind are refused
//! hold cancel                 calls of this kind wait from now on
//! let cancel                  they go on, and later ones do not wait
//! active web1 80              the guest touches so many percent of its memory from now on
//! swap 4096                   the machine has so many MiB of swap space from now on
//! pressure 12.5 3.25          programs of the machine wait for memory for so many percent of the time,
//!                             some and all of them
//! room 10                     so many MiB are free where the disks are, from now on
//! ```
//!
//! What can be refused is `create`, `start`, `prepare`, `cancel`, `erase` and `fetch`; what can be held is these,
//! and `transfer` and `post-copy`, which then do not come to their end. A `fetch` is one piece of a disk
//! that comes from another host.
//!
//! The file is read whenever the hypervisor gets a request, and while something waits
//! or is sent. Each line happens once; lines that are added later happen later. A line that cannot
//! be read is an error of the request, so that a mistake in it is noticed.

use std::path::PathBuf;

use berth_domain::id::{TimeMs, VmUid};
use berth_domain::signals::{Pressure, Stall};
use berth_domain::topology::CellId;
use uuid::Uuid;

use super::host::Host;
use super::orders::{Moment, Orders};
use crate::domain::Other;
use crate::error::Error;

/// What a line can be, as errors list it.
const LINES: &str = "other UUID NAME, crash NAME, shutdown NAME, lose NAME, take CELL KIB COUNT, break NAME, \
                     refuse CALL COUNT, hold CALL, let CALL, room MIB, active NAME PERCENT, \
                     swap MIB, pressure SOME FULL";

/// A file of events, and how far it was processed.
#[derive(Debug)]
pub(super) struct Story {
    path: PathBuf,
    processed: usize,
}

impl Story {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, processed: 0 }
    }

    /// Lets happen what was added to the file, and returns whether anything was; without the file,
    /// nothing is.
    pub(super) fn go_on(
        &mut self,
        now: TimeMs,
        host: &mut Host,
        orders: &mut Orders,
    ) -> Result<bool, Error> {
        let before = self.processed;
        let Ok(text) = std::fs::read_to_string(&self.path) else {
            return Ok(false);
        };
        // A line without its end is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines().skip(self.processed) {
            happen(line, now, host, orders).map_err(|why| {
                let path = self.path.display();
                Error::refused(format!("{path}: {line:?}: {why}"))
            })?;
            self.processed += 1;
        }
        Ok(self.processed > before)
    }
}

fn happen(line: &str, now: TimeMs, host: &mut Host, orders: &mut Orders) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [] => {}
        ["other", uuid, name] => host.add_other(Other {
            uuid: Uuid::parse_str(uuid).map_err(|error| error.to_string())?,
            name: name.to_owned(),
        }),
        ["crash", name] => host.crash(now, named(host, name)?),
        ["shutdown", name] => {
            let vm = named(host, name)?;
            host.shutdown(now, vm).map_err(|error| error.to_string())?;
        }
        ["lose", name] => host.lose(named(host, name)?),
        ["take", cell, size_kib, count] => {
            let cell = CellId(number(cell)?);
            host.take_pages(cell, number(size_kib)?, number(count)?);
        }
        ["break", name] => orders.break_off(named(host, name)?),
        ["refuse", moment, count] => orders.refuse(Moment::parse(moment)?, number(count)?),
        ["hold", moment] => orders.hold(Moment::parse(moment)?),
        ["room", mib] => orders.limit_free_space(number::<u64>(mib)?.saturating_mul(1 << 20)),
        ["let", moment] => orders.go_on(Moment::parse(moment)?),
        ["active", name, percent] => {
            let percent = Some(number(percent)?);
            host.set_active(named(host, name)?, percent);
        }
        ["swap", mib] => host.set_swap_mib(number(mib)?),
        ["pressure", some, full] => host.set_pressure(Pressure {
            some: stall(some)?,
            full: stall(full)?,
        }),
        _ => return Err(format!("must be one of {LINES}")),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

/// Reads a share of the time, the same over every time.
fn stall(word: &str) -> Result<Stall, String> {
    let hundredths = Stall::hundredths(word);
    let hundredths = hundredths.ok_or_else(|| format!("{word} is no share in percent"))?;
    Ok(Stall::from_hundredths(hundredths, hundredths))
}

fn named(host: &Host, name: &str) -> Result<VmUid, String> {
    let mut domains = host.domains().values();
    let found = domains.find(|domain| domain.spec.vm.as_str() == name);
    let found = found.ok_or_else(|| format!("there is no guest {name}"))?;
    Ok(found.spec.uid)
}
