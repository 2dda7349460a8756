//! libvirt's C interface: its structures, constants, and the table of its functions.
//!
//! What it is not: safe. Nothing of this leaves the parent module.
//!
//! Invariant: the signatures and layouts below are those of libvirt's public headers,
//! which are stable: libvirt never changes a published function. All of them are in
//! every libvirt since 4.4.0.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulong, c_ulonglong, c_void};

use super::error::{Error, Fault};

/// The file name of the library, with the version of its binary interface.
pub(super) const LIBRARY: &str = "libvirt.so.0";

/// `virConnect`, opaque.
#[repr(C)]
pub(super) struct Connect {
    _opaque: [u8; 0],
}

/// `virDomain`, opaque.
#[repr(C)]
pub(super) struct DomainObject {
    _opaque: [u8; 0],
}

/// The first fields of `virError`; the rest is never read, and never allocated by us.
#[repr(C)]
pub(super) struct LastError {
    pub(super) code: c_int,
    pub(super) domain: c_int,
    pub(super) message: *const c_char,
}

/// `VIR_TYPED_PARAM_FIELD_LENGTH`.
pub(super) const FIELD_LENGTH: usize = 80;

/// `virTypedParameterType`.
pub(super) mod typed {
    use std::ffi::c_int;

    pub(crate) const INT: c_int = 1;
    pub(crate) const UINT: c_int = 2;
    pub(crate) const LLONG: c_int = 3;
    pub(crate) const ULLONG: c_int = 4;
    pub(crate) const BOOLEAN: c_int = 6;
    pub(crate) const STRING: c_int = 7;
}

/// The value of a `virTypedParameter`; its `kind` states which field holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union ParameterValue {
    pub(super) int: c_int,
    pub(super) uint: c_uint,
    pub(super) long: c_longlong,
    pub(super) ulong: c_ulonglong,
    pub(super) boolean: c_char,
    pub(super) string: *mut c_char,
}

/// `virTypedParameter`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub(super) field: [c_char; FIELD_LENGTH],
    pub(super) kind: c_int,
    pub(super) value: ParameterValue,
}

/// `virDomainMemoryStatStruct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct MemoryStat {
    pub(super) tag: c_int,
    pub(super) value: c_ulonglong,
}

/// `VIR_DOMAIN_MEMORY_STAT_RSS`.
pub(super) const MEMORY_STAT_RSS: c_int = 7;

/// At least `VIR_DOMAIN_MEMORY_STAT_NR`; libvirt fills as many as fit.
pub(super) const MEMORY_STATS: usize = 16;

/// `virErrorFunc`.
pub(super) type ErrorFunction = unsafe extern "C" fn(*mut c_void, *mut LastError);

unsafe extern "C" {
    /// The C library's `free`: libvirt hands out strings and arrays to be freed with it.
    pub(super) fn free(memory: *mut c_void);
}

/// Does nothing: libvirt would otherwise print each error to the standard error
/// output, beside the `Error` that is returned for it.
unsafe extern "C" fn silence(_data: *mut c_void, _error: *mut LastError) {}

/// Declares the table of functions and how it is filled from the library.
macro_rules! functions {
    ($(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the opened library, by the names that libvirt gives them.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// Fills the table, and leaves the library open for good: it starts
            /// threads of its own, which would not survive being unloaded.
            fn bind(library: libloading::Library) -> Result<Self, Error> {
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is the one that libvirt's header declares for
                        // this name, and the library stays loaded until the process ends.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        *symbol.map_err(|source| Error::FunctionMissing {
                            function: stringify!($name),
                            source,
                        })?
                    },)*
                })
            }
        }
    };
}

functions! {
    fn virInitialize() -> c_int;
    fn virGetLastError() -> *const LastError;
    fn virSetErrorFunc(*mut c_void, Option<ErrorFunction>);

    fn virConnectOpen(*const c_char) -> *mut Connect;
    fn virConnectClose(*mut Connect) -> c_int;
    fn virConnectIsAlive(*mut Connect) -> c_int;
    fn virConnectGetLibVersion(*mut Connect, *mut c_ulong) -> c_int;
    fn virConnectGetVersion(*mut Connect, *mut c_ulong) -> c_int;
    fn virConnectGetHostname(*mut Connect) -> *mut c_char;
    fn virConnectGetCapabilities(*mut Connect) -> *mut c_char;
    fn virConnectGetDomainCapabilities(
        *mut Connect, *const c_char, *const c_char, *const c_char, *const c_char, c_uint
    ) -> *mut c_char;
    fn virConnectBaselineCPU(
        *mut Connect, *const *const c_char, c_uint, c_uint
    ) -> *mut c_char;
    fn virConnectCompareHypervisorCPU(
        *mut Connect, *const c_char, *const c_char, *const c_char, *const c_char, *const c_char,
        c_uint
    ) -> c_int;
    fn virConnectListAllDomains(*mut Connect, *mut *mut *mut DomainObject, c_uint) -> c_int;

    fn virDomainLookupByName(*mut Connect, *const c_char) -> *mut DomainObject;
    fn virDomainLookupByUUIDString(*mut Connect, *const c_char) -> *mut DomainObject;
    fn virDomainDefineXML(*mut Connect, *const c_char) -> *mut DomainObject;
    fn virDomainCreateXML(*mut Connect, *const c_char, c_uint) -> *mut DomainObject;

    fn virDomainFree(*mut DomainObject) -> c_int;
    fn virDomainGetName(*mut DomainObject) -> *const c_char;
    fn virDomainGetUUIDString(*mut DomainObject, *mut c_char) -> c_int;
    fn virDomainGetXMLDesc(*mut DomainObject, c_uint) -> *mut c_char;
    fn virDomainGetState(*mut DomainObject, *mut c_int, *mut c_int, c_uint) -> c_int;
    fn virDomainIsPersistent(*mut DomainObject) -> c_int;
    fn virDomainMemoryStats(*mut DomainObject, *mut MemoryStat, c_uint, c_uint) -> c_int;
    fn virDomainCreateWithFlags(*mut DomainObject, c_uint) -> c_int;
    fn virDomainDestroyFlags(*mut DomainObject, c_uint) -> c_int;
    fn virDomainShutdownFlags(*mut DomainObject, c_uint) -> c_int;
    fn virDomainUndefineFlags(*mut DomainObject, c_uint) -> c_int;
    fn virDomainSuspend(*mut DomainObject) -> c_int;
    fn virDomainResume(*mut DomainObject) -> c_int;
    fn virDomainSetMetadata(
        *mut DomainObject, c_int, *const c_char, *const c_char, *const c_char, c_uint
    ) -> c_int;
    fn virDomainGetMetadata(*mut DomainObject, c_int, *const c_char, c_uint) -> *mut c_char;
    fn virDomainPinVcpuFlags(*mut DomainObject, c_uint, *mut u8, c_int, c_uint) -> c_int;
    fn virDomainPinEmulator(*mut DomainObject, *mut u8, c_int, c_uint) -> c_int;

    fn virDomainMigrateToURI3(
        *mut DomainObject, *const c_char, *mut Parameter, c_uint, c_uint
    ) -> c_int;
    fn virDomainMigrateSetMaxDowntime(*mut DomainObject, c_ulonglong, c_uint) -> c_int;
    fn virDomainGetJobStats(
        *mut DomainObject, *mut c_int, *mut *mut Parameter, *mut c_int, c_uint
    ) -> c_int;
    fn virDomainMigrateStartPostCopy(*mut DomainObject, c_uint) -> c_int;
    fn virDomainAbortJob(*mut DomainObject) -> c_int;
    fn virDomainBlockCopy(
        *mut DomainObject, *const c_char, *const c_char, *mut Parameter, c_int, c_uint
    ) -> c_int;
    fn virDomainBlockJobAbort(*mut DomainObject, *const c_char, c_uint) -> c_int;
    fn virTypedParamsFree(*mut Parameter, c_int);
}

impl Api {
    /// Opens the library of that file name and prepares it for use.
    pub(super) fn load(file_name: &str) -> Result<Self, Error> {
        // SAFETY: libvirt's initialisers have no requirements towards the process.
        let library = unsafe { libloading::Library::new(file_name) }.map_err(|source| {
            Error::LibraryMissing {
                file_name: file_name.to_owned(),
                source,
            }
        })?;
        let api = Self::bind(library)?;
        // SAFETY: may be called any number of times, from any thread.
        if unsafe { (api.virInitialize)() } < 0 {
            return Err(Error::Libvirt(api.fault("virInitialize")));
        }
        // SAFETY: the handler is a plain function that outlives the library, and it
        // touches neither of its arguments.
        unsafe { (api.virSetErrorFunc)(std::ptr::null_mut(), Some(silence)) };
        Ok(api)
    }

    /// libvirt's error of the call that has just failed on this thread.
    pub(super) fn fault(&self, call: &'static str) -> Fault {
        // SAFETY: returns a pointer into this thread's own storage, valid until the
        // thread's next call into libvirt, or null. It is read before any other call.
        let last = unsafe { (self.virGetLastError)().as_ref() };
        let Some(last) = last else {
            return Fault::unexplained(call);
        };
        let message = if last.message.is_null() {
            String::new()
        } else {
            // SAFETY: not null, and libvirt's messages are terminated strings that live
            // as long as the error that points to them.
            unsafe { CStr::from_ptr(last.message) }
                .to_string_lossy()
                .into_owned()
        };
        Fault {
            call,
            code: last.code,
            domain: last.domain,
            message,
            connection_lost: false,
        }
    }

    /// Takes over a string that libvirt allocated; nothing comes of null, which means that
    /// the call failed.
    ///
    /// # Safety
    ///
    /// `string` is null, or a terminated string that the caller owns and never uses again.
    pub(super) unsafe fn owned_string(string: *mut c_char) -> Option<String> {
        if string.is_null() {
            return None;
        }
        // SAFETY: by this function's own contract.
        let text = unsafe { CStr::from_ptr(string) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: libvirt documents that its strings are to be released with free().
        unsafe { free(string.cast()) };
        Some(text)
    }
}
