//! Sends the disks of a guest that is off to the agent of another host.
//!
//! Invariant: nothing is sent any more once other work on the guest was begun. The reader sees the
//! stream break, and does not take what it has for complete.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::id::{MigrationId, VmUid};
use berth_domain::refusal::{Code, Refusal};
use berth_driver::Driver;
use berth_driver::disks::{DiskReader, Piece};
use berth_proto::agent::v1::read_disks_response::Piece as Wire;
use berth_proto::agent::v1::{
    DiskData, DiskHole, DiskSize, DisksEnd, DisksHead, ReadDisksResponse,
};
use berth_proto::status::to_status;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// To how many others disks are sent at a time.
const READERS_MAX: usize = 8;

/// How many pieces may be on their way to one.
pub(crate) const AHEAD_MAX: usize = 2;

/// What goes to a reader.
pub(crate) type Sender = mpsc::Sender<Result<ReadDisksResponse, Status>>;

#[derive(Default)]
struct All {
    next: u64,
    reading: BTreeMap<u64, (VmUid, CancellationToken)>,
}

/// The readers of the disks of this host's guests. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<All>>);

impl Readers {
    fn lock(&self) -> MutexGuard<'_, All> {
        // Every change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a reader.
    ///
    /// # Errors
    ///
    /// When there are too many.
    pub(crate) fn enter(&self, vm: VmUid) -> Result<Reading, Refusal> {
        let mut all = self.lock();
        if all.reading.len() >= READERS_MAX {
            let message = format!("this agent sends {READERS_MAX} guests' disks already");
            return Err(Refusal::new(Code::Unavailable, "AGENT_BUSY", message));
        }
        all.next += 1;
        let number = all.next;
        let over = CancellationToken::new();
        all.reading.insert(number, (vm, over.clone()));
        Ok(Reading {
            readers: self.clone(),
            number,
            over,
        })
    }

    /// Work on a guest is about to begin: its disks are not sent any more.
    pub(crate) fn revoke(&self, vm: VmUid) {
        for (_, over) in self.lock().reading.values().filter(|(uid, _)| *uid == vm) {
            over.cancel();
        }
    }
}

/// A reader.
pub(crate) struct Reading {
    readers: Readers,
    number: u64,
    over: CancellationToken,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.readers.lock().reading.remove(&self.number);
    }
}

/// Opens the disks of a guest.
pub(crate) fn open(
    driver: &dyn Driver,
    vm: VmUid,
    disks: u32,
    migration: MigrationId,
) -> Result<DiskReader, berth_driver::Error> {
    let disks = usize::try_from(disks).unwrap_or(usize::MAX);
    driver.read_disks(vm, disks, migration)
}

/// Sends all disks. Blocks as long as the reader does not read.
pub(crate) fn send(
    mut disks: DiskReader,
    reading: &Reading,
    stopping: &CancellationToken,
    sender: &Sender,
    refusal: impl Fn(&berth_driver::Error) -> Refusal,
) {
    let size = |size: berth_driver::disks::DiskSize| DiskSize {
        length_bytes: size.length,
        allocated_bytes: size.allocated,
    };
    let sizes = disks.sizes().into_iter().map(size).collect();
    let mut piece = Ok(Wire::Head(DisksHead { disks: sizes }));
    loop {
        let is_over = reading.over.is_cancelled() || stopping.is_cancelled();
        if is_over {
            let message = "other work on the guest was begun while its disks were sent";
            piece = Err(to_status(&Refusal::new(
                Code::Aborted,
                "LATE_CALL",
                message,
            )));
        }
        let is_last = !matches!(piece, Ok(Wire::Head(_) | Wire::Data(_) | Wire::Hole(_)));
        let message = piece.map(|piece| ReadDisksResponse { piece: Some(piece) });
        // The reader may have disconnected.
        if sender.blocking_send(message).is_err() || is_last {
            return;
        }
        piece = match disks.next_piece() {
            Ok(Some(next)) => Ok(wire(next)),
            Ok(None) => Ok(Wire::End(DisksEnd {})),
            Err(error) => Err(to_status(&refusal(&error))),
        };
    }
}

fn wire(piece: Piece) -> Wire {
    let number = |disk: usize| u32::try_from(disk).unwrap_or(u32::MAX);
    match piece {
        Piece::Data {
            disk,
            offset,
            bytes,
        } => Wire::Data(DiskData {
            disk: number(disk),
            offset,
            crc32: crc32fast::hash(&bytes),
            data: bytes.into(),
        }),
        Piece::Hole {
            disk,
            offset,
            length,
        } => Wire::Hole(DiskHole {
            disk: number(disk),
            offset,
            length_bytes: length,
        }),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Goal: at most so many read at a time, and a finished reader frees its permit; readers of the disks of a
    /// guest are cancelled when an operation begins with it, and no others.
    #[test]
    fn readers_are_few_and_are_told_of_what_begins() {
        let vm = |number: u128| VmUid(Uuid::from_u128(number));
        let readers = Readers::default();
        let mut reading: Vec<Reading> = (0..READERS_MAX as u128)
            .map(|number| readers.enter(vm(number % 2)).expect("room"))
            .collect();
        let refused = readers.enter(vm(9)).err().expect("no room");
        assert_eq!(refused.reason, "AGENT_BUSY");
        readers.revoke(vm(1));
        for (number, one) in reading.iter().enumerate() {
            assert_eq!(one.over.is_cancelled(), number % 2 == 1);
        }
        reading.pop();
        let late = readers.enter(vm(1)).expect("room again");
        assert!(!late.over.is_cancelled());
    }
}
