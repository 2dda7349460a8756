//! What `ndctl list` prints, read. Pure.
//!
//! The command is [`ARGUMENTS`]: a plain listing contains neither the node that a namespace is near to
//! nor the state of its character device. Depending on the version and the options, the namespaces
//! are one object, a list, or inside of regions, which may be inside of buses; all of these are
//! read.
//!
//! Invariant: a namespace whose properties cannot be read is not skipped, and does not hide
//! the others: it becomes an [`Entry::Odd`] with the reason. Nothing is guessed from text made for
//! people, such as `124.00 MiB`.

use std::fmt;

use serde_json::{Map, Value};

/// Arguments of the program. Idle namespaces are listed too, so that one that is switched off can
/// be distinguished from one that does not exist.
pub const ARGUMENTS: [&str; 5] = [
    "list",
    "--namespaces",
    "--device-dax",
    "--idle",
    "--verbose",
];

/// The most entries that are read.
pub const ENTRIES_MAX: usize = 8192;

/// How much of the output is repeated in a message, in characters.
const QUOTED_MAX: usize = 120;

/// What a namespace is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A character device that guests can be assigned.
    Devdax,
    /// A block device for file systems that map files directly.
    Fsdax,
    /// A block device whose sectors are written whole or not at all.
    Sector,
    /// A block device.
    Raw,
    /// It was made for guests, but the kernel uses it as ordinary memory.
    SystemRam,
    /// One that this program does not know.
    Other(String),
}

impl Mode {
    /// Returns the mode that ndctl calls so.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text {
            "devdax" => Self::Devdax,
            "fsdax" => Self::Fsdax,
            "sector" => Self::Sector,
            "raw" => Self::Raw,
            "system-ram" => Self::SystemRam,
            other => Self::Other(other.chars().take(QUOTED_MAX).collect()),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Devdax => "devdax",
            Self::Fsdax => "fsdax",
            Self::Sector => "sector",
            Self::Raw => "raw",
            Self::SystemRam => "system-ram",
            Self::Other(text) => text,
        })
    }
}

/// A namespace as ndctl reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The kernel's name of it, as `namespace0.1`; another one after each start of the host.
    pub dev: String,
    /// The name that people gave it; it may have none, and two may have the same.
    pub name: Option<String>,
    /// What distinguishes it from all others, if it was made and not discovered.
    pub uuid: Option<String>,
    /// What it is made for.
    pub mode: Mode,
    /// Whether the kernel makes it available.
    pub is_enabled: bool,
    /// What of it can be used.
    pub size_bytes: u64,
    /// What sizes and offsets have to be multiples of.
    pub align_bytes: Option<u64>,
    /// The names of its character devices, as `dax0.1`.
    pub devices: Vec<String>,
    /// The node that it is near to, if the firmware reports it.
    pub numa_node: Option<u32>,
    /// The region of memory that it is cut out of, as `region0`.
    pub region: Option<String>,
}

/// One entry of the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It could be read.
    Read(Namespace),
    /// It could not.
    Odd {
        /// The kernel's name of it, if that could be read.
        dev: Option<String>,
        /// Its name, if that could be read.
        name: Option<String>,
        /// What is odd.
        why: String,
    },
}

impl Entry {
    /// Returns the name that people gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Read(namespace) => namespace.name.as_deref(),
            Self::Odd { name, .. } => name.as_deref(),
        }
    }

    /// Returns the kernel's name of it.
    #[must_use]
    pub fn dev(&self) -> Option<&str> {
        match self {
            Self::Read(namespace) => Some(&namespace.dev),
            Self::Odd { dev, .. } => dev.as_deref(),
        }
    }
}

/// Why an output is not a listing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not JSON, or ends early.
    #[error("ndctl list did not print JSON ({why}): {begin:?}")]
    NotJson {
        /// The parser's error.
        why: String,
        /// How the output begins.
        begin: String,
    },
    /// It is JSON, but not a listing.
    #[error("ndctl list printed JSON that is no list of namespaces: {begin:?}")]
    NotAList {
        /// How the odd part begins.
        begin: String,
    },
    /// There are more entries than any host has.
    #[error("ndctl list printed more than {ENTRIES_MAX} namespaces")]
    TooMany,
}

/// Reads what the program printed. Nothing printed: no namespaces.
///
/// # Errors
///
/// When it is no listing at all.
pub fn read(output: &[u8]) -> Result<Vec<Entry>, Error> {
    let text = String::from_utf8_lossy(output);
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| Error::NotJson {
        why: error.to_string(),
        begin: begin(&text),
    })?;
    let mut entries = Vec::new();
    collect(&value, None, &mut entries)?;
    Ok(entries)
}

/// Goes through lists, buses and regions to the namespaces. The depth is bounded by the reader of
/// JSON.
fn collect(value: &Value, region: Option<&str>, entries: &mut Vec<Entry>) -> Result<(), Error> {
    let odd = || Error::NotAList {
        begin: begin(&value.to_string()),
    };
    match value {
        Value::Array(values) => values
            .iter()
            .try_for_each(|value| collect(value, region, entries)),
        Value::Object(object) => {
            let dev = object.get("dev").and_then(Value::as_str);
            let inner = ["buses", "regions", "namespaces"]
                .iter()
                .filter_map(|key| object.get(*key));
            let mut is_holder = false;
            for value in inner {
                is_holder = true;
                let region = dev.filter(|dev| dev.starts_with("region")).or(region);
                collect(value, region, entries)?;
            }
            // A bus or a region that has no namespaces, or memory modules.
            let is_other = dev.is_some_and(|dev| {
                let others = ["ndbus", "region", "nmem"];
                others.iter().any(|other| dev.starts_with(other))
            });
            if is_holder || is_other || object.contains_key("dimms") {
                return Ok(());
            }
            if dev.is_none() && !object.contains_key("mode") {
                return Err(odd());
            }
            if entries.len() == ENTRIES_MAX {
                return Err(Error::TooMany);
            }
            entries.push(entry(object, region));
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(odd()),
    }
}

fn entry(object: &Map<String, Value>, region: Option<&str>) -> Entry {
    namespace(object, region).map_or_else(
        |why| Entry::Odd {
            dev: text(object, "dev").ok().flatten(),
            name: text(object, "name").ok().flatten(),
            why,
        },
        Entry::Read,
    )
}

fn namespace(object: &Map<String, Value>, region: Option<&str>) -> Result<Namespace, String> {
    let dev = text(object, "dev")?.ok_or("it has no property dev")?;
    let mode = text(object, "mode")?.ok_or("it has no property mode")?;
    let size_bytes = number(object, "size")?.ok_or("it has no property size")?;
    let mut namespace = Namespace {
        name: text(object, "name")?.filter(|name| !name.is_empty()),
        uuid: text(object, "uuid")?,
        mode: Mode::new(&mode),
        is_enabled: text(object, "state")?.as_deref() != Some("disabled"),
        size_bytes,
        align_bytes: number(object, "align")?,
        devices: Vec::new(),
        numa_node: node(object)?,
        region: region.map(str::to_owned).or_else(|| region_of(&dev)),
        dev,
    };
    if let Some(device) = text(object, "chardev")? {
        namespace.devices.push(device);
    }
    if let Some(value) = object.get("daxregion") {
        let dax = value.as_object().ok_or("its daxregion is no object")?;
        take_in(&mut namespace, dax)?;
    }
    if let Some(device) = namespace.devices.iter().find(|name| !is_device(name)) {
        let device: String = device.chars().take(QUOTED_MAX).collect();
        return Err(format!(
            "its character device is {device:?}, not like dax0.0"
        ));
    }
    Ok(namespace)
}

/// Reads the character devices: the size that can be mapped is what counts.
fn take_in(namespace: &mut Namespace, dax: &Map<String, Value>) -> Result<(), String> {
    let align = |namespace: &mut Namespace, found: Option<u64>| {
        namespace.align_bytes = namespace.align_bytes.max(found);
    };
    align(namespace, number(dax, "align")?);
    let Some(devices) = dax.get("devices") else {
        return Ok(());
    };
    let devices = devices.as_array().ok_or("its devices are no list")?;
    for device in devices {
        let device = device
            .as_object()
            .ok_or("one of its devices is no object")?;
        let name = text(device, "chardev")?.ok_or("one of its devices has no chardev")?;
        align(namespace, number(device, "align")?);
        if let Some(size_bytes) = number(device, "size")? {
            namespace.size_bytes = namespace.size_bytes.min(size_bytes);
        }
        // The namespace stays in devdax mode when its device is made ordinary memory.
        match text(device, "mode")?.as_deref() {
            None | Some("devdax") => {}
            Some(mode) => namespace.mode = Mode::new(mode),
        }
        if !namespace.devices.contains(&name) {
            namespace.devices.push(name);
        }
    }
    Ok(())
}

/// `namespace0.1` is the kernel's second namespace of `region0`.
fn region_of(dev: &str) -> Option<String> {
    let (region, _) = dev.strip_prefix("namespace")?.split_once('.')?;
    let is_number = !region.is_empty() && region.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| format!("region{region}"))
}

/// The name goes into a path, so that it is looked at closely.
fn is_device(name: &str) -> bool {
    let number =
        |text: &str| (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("dax")
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(region, device)| number(region) && number(device))
}

fn text(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!(
            "its {key} is {}, not a text",
            begin(&other.to_string())
        )),
    }
}

fn number(object: &Map<String, Value>, key: &str) -> Result<Option<u64>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Err(format!(
            "its {key} is the text {:?}, not a number of bytes: ndctl was called for human-readable output",
            begin(text)
        )),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            format!(
                "its {key} is {}, not a number of bytes",
                begin(&value.to_string())
            )
        }),
    }
}

/// A node that the firmware did not report is -1, or missing.
fn node(object: &Map<String, Value>) -> Result<Option<u32>, String> {
    let Some(value) = object.get("numa_node").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let odd = || format!("its numa_node is {}", begin(&value.to_string()));
    let node = value.as_i64().ok_or_else(odd)?;
    if node == -1 {
        return Ok(None);
    }
    u32::try_from(node).map(Some).map_err(|_| odd())
}

fn begin(text: &str) -> String {
    let mut begin: String = text.trim().chars().take(QUOTED_MAX).collect();
    if begin.len() < text.trim().len() {
        begin.push('…');
    }
    begin
}
