//! The opened library and a connection to one hypervisor.
//!
//! What it is not: a pool, or something that reconnects. A connection whose daemon went
//! away stays broken ([`Connection::is_alive`]); the owner opens another.
//!
//! Invariant: a connection stays open as long as any [`Domain`](super::Domain) of it exists; one call at a
//! time is under way on it.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulong};
use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::error::Error;
use super::ffi::{self, Api};

/// The library once it is open; it is never closed.
static API: OnceLock<Api> = OnceLock::new();

/// libvirt's client library, opened.
#[derive(Clone, Copy)]
pub struct Library {
    pub(super) api: &'static Api,
}

impl Library {
    /// Opens `libvirt.so.0`; a second call finds it open.
    ///
    /// A failure is not remembered: a library that is installed later is found later.
    pub fn open() -> Result<Self, Error> {
        static OPENING: Mutex<()> = Mutex::new(());
        if let Some(api) = API.get() {
            return Ok(Self { api });
        }
        // The lock guards no data, so that a panic of another holder spoils nothing.
        let _guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(api) = API.get() {
            return Ok(Self { api });
        }
        let api = Api::load(ffi::LIBRARY)?;
        Ok(Self {
            api: API.get_or_init(|| api),
        })
    }

    /// Connects to the hypervisor at `uri`, such as `qemu:///system`.
    pub fn connect(self, uri: &str) -> Result<Connection, Error> {
        let name = c_string(uri, "URI")?;
        // SAFETY: the argument is a terminated string that outlives the call.
        let raw = unsafe { (self.api.virConnectOpen)(name.as_ptr()) };
        match NonNull::new(raw) {
            Some(raw) => {
                let inner = Inner {
                    api: self.api,
                    raw,
                    uri: uri.to_owned(),
                    turn: Mutex::new(()),
                };
                Ok(Connection {
                    inner: Arc::new(inner),
                })
            }
            None => {
                let fault = self.api.fault("virConnectOpen");
                Err(Error::ConnectFailed {
                    uri: uri.to_owned(),
                    fault,
                })
            }
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Library")
    }
}

/// A version as libvirt counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub release: u64,
}

impl From<c_ulong> for Version {
    fn from(packed: c_ulong) -> Self {
        Self {
            major: packed / 1_000_000,
            minor: packed / 1_000 % 1_000,
            release: packed % 1_000,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// What of a hypervisor guests are run by: on all of it depends which CPUs they can be given.
#[derive(Debug, Clone, Copy)]
pub struct Platform<'a> {
    /// The emulator's program, where it is not libvirt's choice.
    pub emulator: Option<&'a Path>,
    /// The architecture of guests, as `x86_64`.
    pub arch: &'a str,
    /// The machine type, as `q35`.
    pub machine: &'a str,
    /// How guests are executed, as `qemu`.
    pub virt_type: &'a str,
}

/// The same as libvirt takes it.
struct PlatformStrings {
    emulator: Option<CString>,
    arch: CString,
    machine: CString,
    virt_type: CString,
}

impl PlatformStrings {
    fn new(platform: Platform<'_>) -> Result<Self, Error> {
        let emulator = platform.emulator.map(|path| path.display().to_string());
        Ok(Self {
            emulator: emulator
                .map(|path| c_string(&path, "emulator"))
                .transpose()?,
            arch: c_string(platform.arch, "architecture")?,
            machine: c_string(platform.machine, "machine type")?,
            virt_type: c_string(platform.virt_type, "domain type")?,
        })
    }

    fn emulator(&self) -> *const c_char {
        self.emulator
            .as_ref()
            .map_or(ptr::null(), |path| path.as_ptr())
    }
}

/// How a guest's CPU relates to what a hypervisor offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuComparison {
    /// The hypervisor cannot give it.
    Incompatible,
    /// It is exactly what the hypervisor offers.
    Identical,
    /// The hypervisor offers that and more.
    Superset,
}

/// A connection to one hypervisor; clones share it.
///
/// Calls from several threads take turns. A caller that is not to wait for the slow call
/// of another (a domain that is being started) opens a connection of its own.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    api: &'static Api,
    raw: NonNull<ffi::Connect>,
    /// Where it leads, for a second connection to the same place.
    uri: String,
    /// Held during each call. libvirt lets threads share a connection, but the client of
    /// 9.0 can lose a wake-up: a thread that calls just as another's call on the same
    /// connection goes back to waiting is not woken until something else arrives.
    turn: Mutex<()>,
}

// SAFETY: libvirt documents its connection object for use by any number of threads.
unsafe impl Send for Inner {}
// SAFETY: as above; the library does the locking.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the reference that virConnectOpen gave is released once, here.
        unsafe { (self.api.virConnectClose)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Connection")
    }
}

impl Connection {
    /// Opens the library if need be, and connects to the hypervisor at `uri`.
    pub fn open(uri: &str) -> Result<Self, Error> {
        Library::open()?.connect(uri)
    }

    /// The connection as libvirt knows it; open as long as `self` lives.
    pub(super) fn as_ptr(&self) -> *mut ffi::Connect {
        self.inner.raw.as_ptr()
    }

    pub(super) fn api(&self) -> &'static Api {
        self.inner.api
    }

    /// Opens another connection to the same hypervisor.
    pub(super) fn another(&self) -> Result<Self, Error> {
        Library {
            api: self.inner.api,
        }
        .connect(&self.inner.uri)
    }

    /// Waits until no other thread is in a call on this connection.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data, so that a panic of another holder spoils nothing.
        self.inner
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the daemon is still at the other end, as far as the last call saw.
    pub fn is_alive(&self) -> bool {
        // SAFETY: the connection is open as long as `inner` lives.
        unsafe { (self.inner.api.virConnectIsAlive)(self.inner.raw.as_ptr()) == 1 }
    }

    /// Returns the daemon's version of libvirt.
    pub fn library_version(&self) -> Result<Version, Error> {
        let _turn = self.turn();
        let mut packed: c_ulong = 0;
        // SAFETY: an open connection and storage for the result.
        let result = unsafe {
            (self.inner.api.virConnectGetLibVersion)(self.inner.raw.as_ptr(), &mut packed)
        };
        self.done("virConnectGetLibVersion", result)
            .map(|()| packed.into())
    }

    /// Returns the hypervisor's version.
    pub fn hypervisor_version(&self) -> Result<Version, Error> {
        let _turn = self.turn();
        let mut packed: c_ulong = 0;
        // SAFETY: an open connection and storage for the result.
        let result =
            unsafe { (self.inner.api.virConnectGetVersion)(self.inner.raw.as_ptr(), &mut packed) };
        self.done("virConnectGetVersion", result)
            .map(|()| packed.into())
    }

    /// Returns the host's name, as the daemon knows it.
    pub fn hostname(&self) -> Result<String, Error> {
        let _turn = self.turn();
        // SAFETY: an open connection; the string that comes back is ours.
        unsafe {
            let name = (self.inner.api.virConnectGetHostname)(self.inner.raw.as_ptr());
            Api::owned_string(name).ok_or_else(|| self.error("virConnectGetHostname"))
        }
    }

    /// Returns the capabilities XML of the host and its hypervisor.
    pub fn capabilities(&self) -> Result<String, Error> {
        let _turn = self.turn();
        // SAFETY: an open connection; the string that comes back is ours.
        unsafe {
            let xml = (self.inner.api.virConnectGetCapabilities)(self.inner.raw.as_ptr());
            Api::owned_string(xml).ok_or_else(|| self.error("virConnectGetCapabilities"))
        }
    }

    /// Returns the domain capabilities XML: among others, which CPUs guests can be given.
    pub fn domain_capabilities(&self, platform: Platform<'_>) -> Result<String, Error> {
        let strings = PlatformStrings::new(platform)?;
        let _turn = self.turn();
        // SAFETY: an open connection and terminated strings that outlive the call, or null for the
        // emulator, which libvirt allows; the string that comes back is ours.
        unsafe {
            let xml = (self.inner.api.virConnectGetDomainCapabilities)(
                self.inner.raw.as_ptr(),
                strings.emulator(),
                strings.arch.as_ptr(),
                strings.machine.as_ptr(),
                strings.virt_type.as_ptr(),
                0,
            );
            Api::owned_string(xml).ok_or_else(|| self.error("virConnectGetDomainCapabilities"))
        }
    }

    /// Returns the best CPU that all these hosts can give, with each of its features. They are
    /// descriptions of hosts' CPUs (`<cpu><arch>…`): libvirt overlooks features that are disabled.
    pub fn baseline_cpu(&self, hosts: &[impl AsRef<str>]) -> Result<String, Error> {
        // VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES.
        const EXPAND_FEATURES: c_uint = 1;
        let hosts: Vec<_> = hosts
            .iter()
            .map(|host| c_string(host.as_ref(), "description of a CPU"))
            .collect::<Result<_, _>>()?;
        let pointers: Vec<_> = hosts.iter().map(|host| host.as_ptr()).collect();
        let count = c_uint::try_from(pointers.len()).expect("CPUs of hosts are counted in 32 bits");
        let _turn = self.turn();
        // SAFETY: an open connection, and that many terminated strings that outlive the call; the
        // string that comes back is ours.
        unsafe {
            let xml = (self.inner.api.virConnectBaselineCPU)(
                self.inner.raw.as_ptr(),
                pointers.as_ptr(),
                count,
                EXPAND_FEATURES,
            );
            Api::owned_string(xml).ok_or_else(|| self.error("virConnectBaselineCPU"))
        }
    }

    /// Compares the CPU of a guest, as an element `<cpu>`, with what guests can be given.
    pub fn compare_cpu(&self, platform: Platform<'_>, cpu: &str) -> Result<CpuComparison, Error> {
        self.compare(platform, cpu, 0)
    }

    /// Checks that guests can be given this CPU, an element `<cpu>`: libvirt's error names what is missing.
    pub fn require_cpu(&self, platform: Platform<'_>, cpu: &str) -> Result<(), Error> {
        // VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE.
        const FAIL_INCOMPATIBLE: c_uint = 1;
        self.compare(platform, cpu, FAIL_INCOMPATIBLE).map(drop)
    }

    fn compare(
        &self,
        platform: Platform<'_>,
        cpu: &str,
        flags: c_uint,
    ) -> Result<CpuComparison, Error> {
        let strings = PlatformStrings::new(platform)?;
        let cpu = c_string(cpu, "description of a CPU")?;
        let _turn = self.turn();
        // SAFETY: an open connection and terminated strings that outlive the call, or null for the
        // emulator, which libvirt allows.
        let result: c_int = unsafe {
            (self.inner.api.virConnectCompareHypervisorCPU)(
                self.inner.raw.as_ptr(),
                strings.emulator(),
                strings.arch.as_ptr(),
                strings.machine.as_ptr(),
                strings.virt_type.as_ptr(),
                cpu.as_ptr(),
                flags,
            )
        };
        self.done("virConnectCompareHypervisorCPU", result)?;
        // virCPUCompareResult.
        Ok(match result {
            1 => CpuComparison::Identical,
            2 => CpuComparison::Superset,
            _ => CpuComparison::Incompatible,
        })
    }

    pub(super) fn done(&self, call: &'static str, result: i32) -> Result<(), Error> {
        if result < 0 {
            Err(self.error(call))
        } else {
            Ok(())
        }
    }

    /// libvirt's error of the call that has just failed on this thread.
    pub(super) fn error(&self, call: &'static str) -> Error {
        let mut fault = self.inner.api.fault(call);
        fault.connection_lost = !self.is_alive();
        Error::Libvirt(fault)
    }
}

/// A string for C, or the complaint about the argument `what`.
pub(super) fn c_string(text: &str, what: &'static str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte { what })
}

#[cfg(test)]
mod tests {
    //! What it does with libvirt's own test hypervisor is shown by `tests/tests/real/libvirt.rs`.

    use super::super::error::Kind;
    use super::*;

    #[test]
    fn an_absent_library_is_named() {
        let error = Api::load("libvirt-not-there.so.0")
            .err()
            .expect("no such file");
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(
            error
                .to_string()
                .starts_with("libvirt-not-there.so.0 cannot be opened")
        );
    }

    #[test]
    fn a_library_without_the_functions_is_named() {
        let error = Api::load("libc.so.6").err().expect("not libvirt");
        assert!(matches!(
            error,
            Error::FunctionMissing {
                function: "virInitialize",
                ..
            }
        ));
    }

    #[test]
    fn versions_are_unpacked() {
        assert_eq!(Version::from(9_000_000).to_string(), "9.0.0");
        assert_eq!(Version::from(7_002_022).to_string(), "7.2.22");
    }
}
