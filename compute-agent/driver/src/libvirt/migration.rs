//! How a domain is to be moved: the choices of one live migration.
//!
//! What it is not: the destination's claim. The XML that carries it is written elsewhere
//! and is only handed through.

use super::error::Error;
use super::parameters::ParameterList;

/// The choices of one live migration from daemon to daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// The domain's XML on the destination: its pins, its memory, its paths. The parts
    /// that the guest sees must be those of the source.
    pub destination_xml: Option<String>,
    /// What the destination keeps as the domain's definition; needs `persist_destination`.
    pub persistent_xml: Option<String>,
    /// Where the guest's memory is sent, such as `tcp://192.0.2.7`; the destination
    /// chooses if this is not set.
    pub migrate_uri: Option<String>,
    /// The address on which the destination listens for the guest's memory and disks.
    pub listen_address: Option<String>,
    /// The most that the migration may take of the network, in MiB/s.
    pub bandwidth_mib_per_s_max: Option<u64>,
    /// Disks to copy, by their target names (`vda`); the rest is taken for shared. The
    /// destination must hold an image of the same size for each, over the same backing file:
    /// what is below the uppermost layer is not copied.
    pub copied_disks: Vec<String>,
    /// The caller vouches for what libvirt cannot see: that the disks which are not
    /// copied are the same on both hosts.
    pub disks_are_shared: bool,
    /// The domain is defined on the destination for good.
    pub persist_destination: bool,
    /// The source forgets its definition.
    pub undefine_source: bool,
    /// The guest is slowed down if it writes faster than its memory can be sent.
    pub auto_converge: bool,
    /// The guest may be let go on the destination before all of its memory is there, when
    /// [`Domain::start_post_copy`](super::Domain::start_post_copy) is called.
    pub post_copy: bool,
    /// Memory and copied disks are encrypted on their way, by the certificates of QEMU.
    pub tls: bool,
    /// The name in the certificate of the destination's QEMU; the destination reports one if this is
    /// not set.
    pub tls_destination: Option<String>,
}

// virDomainMigrateFlags.
const LIVE: u32 = 1;
const PEER_TO_PEER: u32 = 1 << 1;
const PERSIST_DESTINATION: u32 = 1 << 3;
const UNDEFINE_SOURCE: u32 = 1 << 4;
const NON_SHARED_INC: u32 = 1 << 7;
const UNSAFE: u32 = 1 << 9;
const ABORT_ON_ERROR: u32 = 1 << 12;
const AUTO_CONVERGE: u32 = 1 << 13;
const POST_COPY: u32 = 1 << 15;
const TLS: u32 = 1 << 16;

impl Migration {
    pub(super) fn flags(&self) -> u32 {
        // An I/O error of the guest ends the migration, rather than moving the error along.
        let mut flags = LIVE | PEER_TO_PEER | ABORT_ON_ERROR;
        let choices = [
            (self.persist_destination, PERSIST_DESTINATION),
            (self.undefine_source, UNDEFINE_SOURCE),
            (!self.copied_disks.is_empty(), NON_SHARED_INC),
            (self.disks_are_shared, UNSAFE),
            (self.auto_converge, AUTO_CONVERGE),
            (self.post_copy, POST_COPY),
            (self.tls, TLS),
        ];
        for (chosen, flag) in choices {
            if chosen {
                flags |= flag;
            }
        }
        flags
    }

    pub(super) fn parameters(&self) -> Result<ParameterList, Error> {
        let mut list = ParameterList::default();
        let strings = [
            ("destination_xml", &self.destination_xml),
            ("persistent_xml", &self.persistent_xml),
            ("migrate_uri", &self.migrate_uri),
            ("listen_address", &self.listen_address),
            ("tls.destination", &self.tls_destination),
        ];
        for (name, value) in strings {
            if let Some(value) = value {
                list.push_string(name, value)?;
            }
        }
        for disk in &self.copied_disks {
            list.push_string("migrate_disks", disk)?;
        }
        if let Some(bandwidth) = self.bandwidth_mib_per_s_max {
            list.push_number("bandwidth", bandwidth);
        }
        Ok(list)
    }
}
