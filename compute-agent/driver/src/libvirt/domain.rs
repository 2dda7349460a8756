//! One domain of a hypervisor: read it, start and stop it, pin it, move it.
//!
//! What it is not: a copy of the domain. Each method queries libvirt; the domain may be
//! gone by then, which is [`Kind::NoDomain`](super::Kind::NoDomain).

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;
use std::ptr::{self, NonNull};

use super::connection::{Connection, c_string};
use super::error::{Error, Kind};
use super::ffi::{self, Api, Parameter, typed};
use super::job::{JobKind, JobStats};
use super::migration::Migration;

/// What a domain is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainState {
    /// libvirt does not know.
    NoState,
    /// It runs.
    Running,
    /// It waits for a resource.
    Blocked,
    /// Its vCPUs stand still.
    Paused,
    /// The guest is shutting down.
    ShuttingDown,
    /// Defined, and not running.
    ShutOff,
    /// The guest crashed.
    Crashed,
    /// The guest put itself to sleep.
    Suspended,
}

impl From<c_int> for DomainState {
    fn from(number: c_int) -> Self {
        match number {
            1 => Self::Running,
            2 => Self::Blocked,
            3 => Self::Paused,
            4 => Self::ShuttingDown,
            5 => Self::ShutOff,
            6 => Self::Crashed,
            7 => Self::Suspended,
            _ => Self::NoState,
        }
    }
}

/// A state and libvirt's reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainStatus {
    /// The state.
    pub state: DomainState,
    /// The reason; its meaning depends on the state ([`running`], [`paused`], [`shut_off`]).
    pub reason: i32,
}

/// Reasons of [`DomainState::Running`].
pub mod running {
    /// It was booted.
    pub const BOOTED: i32 = 1;
    /// It came from another host.
    pub const MIGRATED: i32 = 2;
    /// It was resumed after a pause.
    pub const UNPAUSED: i32 = 4;
    /// It was to leave, and the migration was cancelled.
    pub const MIGRATION_CANCELED: i32 = 6;
    /// It runs here already, and the other host still holds memory of it.
    pub const POST_COPY: i32 = 10;
    /// As `POST_COPY`, and the link is lost.
    pub const POST_COPY_FAILED: i32 = 11;
}

/// Reasons of [`DomainState::Paused`].
pub mod paused {
    /// Upon a request.
    pub const USER: i32 = 1;
    /// A migration holds it: on the source during the switch, on the destination until it.
    pub const MIGRATION: i32 = 2;
    /// A disk failed.
    pub const IO_ERROR: i32 = 5;
    /// It is being started.
    pub const STARTING_UP: i32 = 11;
    /// It runs on the other host, and its memory is still partly here.
    pub const POST_COPY: i32 = 12;
    /// As `POST_COPY`, and the link is lost.
    pub const POST_COPY_FAILED: i32 = 13;
}

/// Reasons of [`DomainState::ShutOff`].
pub mod shut_off {
    /// The guest shut down.
    pub const SHUTDOWN: i32 = 1;
    /// Its plug was pulled.
    pub const DESTROYED: i32 = 2;
    /// Its hypervisor process crashed.
    pub const CRASHED: i32 = 3;
    /// It went to another host.
    pub const MIGRATED: i32 = 4;
    /// It failed to start.
    pub const FAILED: i32 = 6;
}

/// Which description of a domain is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XmlView {
    /// As it is now.
    Live,
    /// As it would be started again.
    Inactive,
    /// As another host would need it: the base of a destination's XML.
    Migratable,
}

/// What a change is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affects {
    /// The running domain.
    Live,
    /// Its definition.
    Definition,
    /// Both.
    Both,
}

impl Affects {
    fn flags(self) -> c_uint {
        match self {
            Self::Live => 1,
            Self::Definition => 2,
            Self::Both => 3,
        }
    }
}

/// A domain of a hypervisor.
pub struct Domain {
    raw: NonNull<ffi::DomainObject>,
    /// Keeps the connection open, which the domain needs.
    connection: Connection,
}

// SAFETY: libvirt documents its domain object for use by any number of threads.
unsafe impl Send for Domain {}
// SAFETY: as above; the library does the locking.
unsafe impl Sync for Domain {}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the reference that `from_raw` took over is released once, here.
        unsafe { (self.api().virDomainFree)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Domain").field(&self.name()).finish()
    }
}

impl Domain {
    /// Takes over a reference to a domain of that connection.
    ///
    /// # Safety
    ///
    /// `raw` is a reference that the caller owns and gives up.
    pub(super) unsafe fn from_raw(connection: Connection, raw: NonNull<ffi::DomainObject>) -> Self {
        Self { raw, connection }
    }

    fn api(&self) -> &'static Api {
        self.connection.api()
    }

    fn done(&self, call: &'static str, result: c_int) -> Result<(), Error> {
        self.connection.done(call, result)
    }

    /// Returns the domain's name.
    pub fn name(&self) -> String {
        // SAFETY: a live domain; the string belongs to it and is copied at once.
        let name = unsafe { (self.api().virDomainGetName)(self.raw.as_ptr()) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null, and terminated.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }

    /// Returns the domain's UUID, with hyphens.
    pub fn uuid(&self) -> Result<String, Error> {
        // VIR_UUID_STRING_BUFLEN: 36 characters and the end of the string.
        let mut buffer = [0_u8; 37];
        // SAFETY: the buffer has the size that the call requires.
        let result = unsafe {
            (self.api().virDomainGetUUIDString)(
                self.raw.as_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
            )
        };
        self.done("virDomainGetUUIDString", result)?;
        let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Returns the state and the reason for it.
    pub fn status(&self) -> Result<DomainStatus, Error> {
        let _turn = self.connection.turn();
        let (mut state, mut reason): (c_int, c_int) = (0, 0);
        // SAFETY: a live domain and storage for the two results.
        let result = unsafe {
            (self.api().virDomainGetState)(self.raw.as_ptr(), &mut state, &mut reason, 0)
        };
        self.done("virDomainGetState", result)?;
        Ok(DomainStatus {
            state: state.into(),
            reason,
        })
    }

    /// Returns whether the domain is persistent, or gone once it stops.
    pub fn is_persistent(&self) -> Result<bool, Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainIsPersistent)(self.raw.as_ptr()) };
        self.done("virDomainIsPersistent", result)?;
        Ok(result == 1)
    }

    /// Returns the resident set of the domain's process in KiB, pages of files included; nothing
    /// where libvirt does not report it.
    pub fn resident_kib(&self) -> Result<Option<u64>, Error> {
        let _turn = self.connection.turn();
        let mut stats = [ffi::MemoryStat::default(); ffi::MEMORY_STATS];
        let capacity = c_uint::try_from(stats.len()).expect("a few");
        // SAFETY: a live domain and an array of the length that is passed with it.
        let count = unsafe {
            (self.api().virDomainMemoryStats)(self.raw.as_ptr(), stats.as_mut_ptr(), capacity, 0)
        };
        self.done("virDomainMemoryStats", count)?;
        let reported = stats.iter().take(usize::try_from(count).unwrap_or(0));
        let mut resident = reported.filter(|stat| stat.tag == ffi::MEMORY_STAT_RSS);
        Ok(resident.next().map(|stat| stat.value))
    }

    /// Returns the domain's XML.
    pub fn xml(&self, view: XmlView) -> Result<String, Error> {
        let _turn = self.connection.turn();
        // VIR_DOMAIN_XML_SECURE belongs to a complete definition (passwords of consoles);
        // the live view is for reading and goes without.
        let flags: c_uint = match view {
            XmlView::Live => 0,
            XmlView::Inactive => 1 | 1 << 1,
            XmlView::Migratable => 1 | 1 << 3,
        };
        // SAFETY: a live domain; the string that comes back is ours.
        unsafe {
            let xml = (self.api().virDomainGetXMLDesc)(self.raw.as_ptr(), flags);
            Api::owned_string(xml).ok_or_else(|| self.connection.error("virDomainGetXMLDesc"))
        }
    }

    /// Starts a defined domain.
    pub fn start(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainCreateWithFlags)(self.raw.as_ptr(), 0) };
        self.done("virDomainCreateWithFlags", result)
    }

    /// Stops the domain at once, as if its power failed.
    pub fn destroy(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainDestroyFlags)(self.raw.as_ptr(), 0) };
        self.done("virDomainDestroyFlags", result)
    }

    /// Requests the guest to power off, as its power button does. Returns at once.
    pub fn shutdown(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainShutdownFlags)(self.raw.as_ptr(), 0) };
        self.done("virDomainShutdownFlags", result)
    }

    /// Removes the definition, and whatever libvirt kept with it.
    pub fn undefine(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        const MANAGED_SAVE: c_uint = 1;
        const SNAPSHOTS: c_uint = 1 << 1;
        // Without the flag for NVRAM: our domains boot with a BIOS, and a hypervisor that
        // has no NVRAM refuses it.
        const FLAGS: c_uint = MANAGED_SAVE | SNAPSHOTS;
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainUndefineFlags)(self.raw.as_ptr(), FLAGS) };
        self.done("virDomainUndefineFlags", result)
    }

    /// Halts the vCPUs.
    pub fn suspend(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainSuspend)(self.raw.as_ptr()) };
        self.done("virDomainSuspend", result)
    }

    /// Lets halted vCPUs go on.
    pub fn resume(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainResume)(self.raw.as_ptr()) };
        self.done("virDomainResume", result)
    }

    /// Stores `element`, one XML element, under its namespace `uri`; nothing removes it.
    pub fn set_metadata(
        &self,
        uri: &str,
        prefix: &str,
        element: Option<&str>,
        affects: Affects,
    ) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let uri = c_string(uri, "metadata's namespace")?;
        let prefix = c_string(prefix, "metadata's prefix")?;
        let element = element.map(|text| c_string(text, "metadata")).transpose()?;
        // SAFETY: a live domain and terminated strings; null removes the element.
        let result = unsafe {
            (self.api().virDomainSetMetadata)(
                self.raw.as_ptr(),
                METADATA_ELEMENT,
                element.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
                prefix.as_ptr(),
                uri.as_ptr(),
                affects.flags(),
            )
        };
        self.done("virDomainSetMetadata", result)
    }

    /// Returns the element stored under the namespace `uri`, without its prefix.
    pub fn metadata(&self, uri: &str) -> Result<String, Error> {
        let _turn = self.connection.turn();
        let uri = c_string(uri, "metadata's namespace")?;
        // SAFETY: a live domain and a terminated string; the result is ours.
        unsafe {
            let element = (self.api().virDomainGetMetadata)(
                self.raw.as_ptr(),
                METADATA_ELEMENT,
                uri.as_ptr(),
                0,
            );
            Api::owned_string(element).ok_or_else(|| self.connection.error("virDomainGetMetadata"))
        }
    }

    /// Confines one vCPU to those CPUs of the host.
    pub fn pin_vcpu(&self, vcpu: u32, cpus: &[u32], affects: Affects) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let (mut map, length) = cpu_map(cpus);
        // SAFETY: a live domain and a map of the length that is passed with it.
        let result = unsafe {
            (self.api().virDomainPinVcpuFlags)(
                self.raw.as_ptr(),
                vcpu,
                map.as_mut_ptr(),
                length,
                affects.flags(),
            )
        };
        self.done("virDomainPinVcpuFlags", result)
    }

    /// Confines the hypervisor's own threads to those CPUs of the host.
    pub fn pin_emulator(&self, cpus: &[u32], affects: Affects) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let (mut map, length) = cpu_map(cpus);
        // SAFETY: a live domain and a map of the length that is passed with it.
        let result = unsafe {
            (self.api().virDomainPinEmulator)(
                self.raw.as_ptr(),
                map.as_mut_ptr(),
                length,
                affects.flags(),
            )
        };
        self.done("virDomainPinEmulator", result)
    }

    /// Moves the running domain to the daemon at `peer_uri`, such as
    /// `qemu+tcp://host-b/system`, which this host's daemon dials.
    ///
    /// Returns when the domain runs there and is gone here. An error does not prove that
    /// it still runs here: the two daemons may have lost each other at the switch, or this
    /// host's daemon may be gone ([`Kind::Unavailable`](super::Kind::Unavailable)). Only
    /// the reports of both hosts afterwards settle it.
    ///
    /// The call has a connection of its own, so that the domain can be watched and the
    /// job aborted meanwhile.
    pub fn migrate(&self, peer_uri: &str, migration: &Migration) -> Result<(), Error> {
        let own = self.connection.another()?.domain_by_uuid(&self.uuid()?)?;
        own.migrate_here(peer_uri, migration)
    }

    fn migrate_here(&self, peer_uri: &str, migration: &Migration) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let uri = c_string(peer_uri, "peer's URI")?;
        let mut list = migration.parameters()?;
        let (parameters, count) = list.as_raw();
        // SAFETY: a live domain, a terminated string, and `count` parameters whose
        // strings are held by `list` until after the call.
        let result = unsafe {
            (self.api().virDomainMigrateToURI3)(
                self.raw.as_ptr(),
                uri.as_ptr(),
                parameters,
                count,
                migration.flags(),
            )
        };
        self.done("virDomainMigrateToURI3", result)
    }

    /// Sets for how long the guest may stand still at the switch of a migration.
    pub fn set_downtime_max(&self, downtime_ms: u64) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe {
            (self.api().virDomainMigrateSetMaxDowntime)(self.raw.as_ptr(), downtime_ms, 0)
        };
        self.done("virDomainMigrateSetMaxDowntime", result)
    }

    /// Lets the guest of a running migration go on at the destination; the migration has to have
    /// been begun with post-copy allowed.
    pub fn start_post_copy(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainMigrateStartPostCopy)(self.raw.as_ptr(), 0) };
        self.done("virDomainMigrateStartPostCopy", result)
    }

    /// Returns the figures of the job that runs on the domain, if one does.
    pub fn job(&self) -> Result<JobStats, Error> {
        self.job_stats(0)
    }

    /// Returns the figures of the job that ended last; libvirt forgets them with this.
    ///
    /// After a migration the destination has them.
    pub fn completed_job(&self) -> Result<JobStats, Error> {
        self.job_stats(1)
    }

    fn job_stats(&self, flags: c_uint) -> Result<JobStats, Error> {
        let _turn = self.connection.turn();
        let mut kind: c_int = 0;
        let mut parameters: *mut Parameter = ptr::null_mut();
        let mut count: c_int = 0;
        // SAFETY: a live domain and storage for the three results.
        let result = unsafe {
            (self.api().virDomainGetJobStats)(
                self.raw.as_ptr(),
                &mut kind,
                &mut parameters,
                &mut count,
                flags,
            )
        };
        self.done("virDomainGetJobStats", result)?;
        let length = usize::try_from(count).unwrap_or(0);
        let mut numbers = BTreeMap::new();
        for index in 0..length {
            // SAFETY: libvirt filled `count` parameters.
            let parameter = unsafe { &*parameters.add(index) };
            if let Some((name, number)) = number_of(parameter) {
                numbers.insert(name, number);
            }
        }
        // SAFETY: the array that libvirt allocated, released once; null is allowed.
        unsafe { (self.api().virTypedParamsFree)(parameters, count) };
        Ok(JobStats::new(JobKind::from(kind), numbers))
    }

    /// Begins to copy a disk, by its target as `vda`, to the destination in the XML element, while the guest
    /// runs. What is written meanwhile is written to both.
    pub fn begin_block_copy(&self, target: &str, destination_xml: &str) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let target = c_string(target, "disk's target")?;
        let xml = c_string(destination_xml, "copy's XML")?;
        // SAFETY: a live domain, terminated strings, no parameters.
        let result = unsafe {
            (self.api().virDomainBlockCopy)(
                self.raw.as_ptr(),
                target.as_ptr(),
                xml.as_ptr(),
                ptr::null_mut(),
                0,
                0,
            )
        };
        self.done("virDomainBlockCopy", result)
    }

    /// Ends the copying of a disk, and returns when it has ended. If the copy is complete
    /// it is the disk as of now; else it is useless.
    pub fn end_block_copy(&self, target: &str) -> Result<(), Error> {
        let _turn = self.connection.turn();
        let target = c_string(target, "disk's target")?;
        // SAFETY: a live domain and a terminated string.
        let result =
            unsafe { (self.api().virDomainBlockJobAbort)(self.raw.as_ptr(), target.as_ptr(), 0) };
        self.done("virDomainBlockJobAbort", result)
    }

    /// Aborts the job that runs on the domain, from any thread.
    pub fn abort_job(&self) -> Result<(), Error> {
        let _turn = self.connection.turn();
        // SAFETY: a live domain.
        let result = unsafe { (self.api().virDomainAbortJob)(self.raw.as_ptr()) };
        self.done("virDomainAbortJob", result)
    }
}

/// `VIR_DOMAIN_METADATA_ELEMENT`.
const METADATA_ELEMENT: c_int = 2;

/// A bit for each CPU, lowest first, and the length in bytes.
fn cpu_map(cpus: &[u32]) -> (Vec<u8>, c_int) {
    let last = cpus.iter().copied().max().unwrap_or(0);
    let mut map = vec![0_u8; last as usize / 8 + 1];
    for cpu in cpus {
        map[*cpu as usize / 8] |= 1 << (cpu % 8);
    }
    let length = c_int::try_from(map.len()).expect("a CPU number divided by 8 fits");
    (map, length)
}

/// The name and value of a parameter, if it is a number.
fn number_of(parameter: &Parameter) -> Option<(String, u64)> {
    let name: Vec<u8> = parameter
        .field
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8)
        .collect();
    // SAFETY: `kind` states which field of the union libvirt wrote; only that one is read.
    let value = unsafe {
        match parameter.kind {
            typed::INT => u64::try_from(parameter.value.int).ok(),
            typed::UINT => Some(u64::from(parameter.value.uint)),
            typed::LLONG => u64::try_from(parameter.value.long).ok(),
            typed::ULLONG => Some(parameter.value.ulong),
            typed::BOOLEAN => Some(u64::from(parameter.value.boolean != 0)),
            _ => None,
        }
    };
    Some((String::from_utf8_lossy(&name).into_owned(), value?))
}

/// The domains of a host.
impl Connection {
    /// Returns every domain of the host, running or not.
    pub fn domains(&self) -> Result<Vec<Domain>, Error> {
        let _turn = self.turn();
        let mut array: *mut *mut ffi::DomainObject = ptr::null_mut();
        // SAFETY: an open connection and storage for the array that libvirt allocates.
        let count = unsafe { (self.api().virConnectListAllDomains)(self.as_ptr(), &mut array, 0) };
        let Ok(count) = usize::try_from(count) else {
            return Err(self.error("virConnectListAllDomains"));
        };
        let domains = (0..count)
            .filter_map(|index| {
                // SAFETY: libvirt filled `count` elements of the array, each a reference
                // that is ours from now on.
                let raw = NonNull::new(unsafe { *array.add(index) })?;
                // SAFETY: such a reference, taken over once.
                Some(unsafe { Domain::from_raw(self.clone(), raw) })
            })
            .collect();
        // SAFETY: the array itself is to be released with free(); null is allowed.
        unsafe { ffi::free(array.cast()) };
        Ok(domains)
    }

    /// Returns the domain of that name.
    pub fn domain_by_name(&self, name: &str) -> Result<Domain, Error> {
        let _turn = self.turn();
        let name = c_string(name, "domain's name")?;
        // SAFETY: an open connection and a terminated string.
        let raw = unsafe { (self.api().virDomainLookupByName)(self.as_ptr(), name.as_ptr()) };
        self.domain("virDomainLookupByName", raw)
    }

    /// Returns the domain of that UUID, written with or without hyphens.
    pub fn domain_by_uuid(&self, uuid: &str) -> Result<Domain, Error> {
        let _turn = self.turn();
        let uuid = c_string(uuid, "domain's UUID")?;
        // SAFETY: an open connection and a terminated string.
        let raw = unsafe { (self.api().virDomainLookupByUUIDString)(self.as_ptr(), uuid.as_ptr()) };
        self.domain("virDomainLookupByUUIDString", raw)
    }

    /// Looks for the domain of that UUID, and returns nothing where there is none.
    pub fn find_domain(&self, uuid: &str) -> Result<Option<Domain>, Error> {
        match self.domain_by_uuid(uuid) {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.kind() == Kind::NoDomain => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a domain known for good, or changes the one of that UUID; starts nothing.
    pub fn define(&self, xml: &str) -> Result<Domain, Error> {
        let _turn = self.turn();
        let xml = c_string(xml, "domain's XML")?;
        // SAFETY: an open connection and a terminated string.
        let raw = unsafe { (self.api().virDomainDefineXML)(self.as_ptr(), xml.as_ptr()) };
        self.domain("virDomainDefineXML", raw)
    }

    /// Starts a transient domain: it is gone from libvirt when it stops.
    pub fn create(&self, xml: &str) -> Result<Domain, Error> {
        let _turn = self.turn();
        let xml = c_string(xml, "domain's XML")?;
        const FLAGS: c_uint = 0;
        // SAFETY: an open connection and a terminated string.
        let raw = unsafe { (self.api().virDomainCreateXML)(self.as_ptr(), xml.as_ptr(), FLAGS) };
        self.domain("virDomainCreateXML", raw)
    }

    fn domain(&self, call: &'static str, raw: *mut ffi::DomainObject) -> Result<Domain, Error> {
        match NonNull::new(raw) {
            // SAFETY: every lookup and creation returns a reference that is the caller's.
            Some(raw) => Ok(unsafe { Domain::from_raw(self.clone(), raw) }),
            None => Err(self.error(call)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_has_the_size_of_libvirts_structure() {
        assert_eq!(size_of::<Parameter>(), 96);
        assert_eq!(std::mem::offset_of!(Parameter, kind), 80);
        assert_eq!(std::mem::offset_of!(Parameter, value), 88);
    }

    #[test]
    fn cpu_maps_count_from_the_lowest_bit() {
        let check = |cpus: &[u32], expected: &[u8]| {
            let (map, length) = cpu_map(cpus);
            assert_eq!(map, expected);
            assert_eq!(length as usize, expected.len());
        };
        check(&[0], &[1]);
        check(&[1, 2], &[6]);
        check(&[7, 8], &[0x80, 1]);
        check(&[17], &[0, 0, 2]);
        check(&[], &[0]);
    }

    #[test]
    fn a_migration_becomes_flags_and_parameters() {
        let migration = Migration {
            destination_xml: Some("<domain/>".to_owned()),
            bandwidth_mib_per_s_max: Some(5),
            copied_disks: vec!["vda".to_owned(), "vdb".to_owned()],
            ..Migration::default()
        };
        // Live, peer to peer, the upper layers of disks copied, aborted on an I/O error.
        assert_eq!(migration.flags(), 1 | 2 | 128 | 4096);
        let mut list = migration.parameters().unwrap();
        let (raw, count) = list.as_raw();
        assert_eq!(count, 4);
        // SAFETY: `as_raw` gives that many parameters, and `list` is still there.
        let parameters = unsafe { std::slice::from_raw_parts(raw, count as usize) };
        let kinds: Vec<_> = parameters.iter().map(|parameter| parameter.kind).collect();
        assert_eq!(
            kinds,
            [typed::STRING, typed::STRING, typed::STRING, typed::ULLONG]
        );
        assert_eq!(number_of(&parameters[3]), Some(("bandwidth".to_owned(), 5)));
    }
}
