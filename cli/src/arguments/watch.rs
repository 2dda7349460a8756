//! The arguments of `berth watch`.

use clap::Args;

/// Arguments of `berth watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Begins with a snapshot (\"is\"), then prints every change. If a scheduler stops,
the watch continues at another one without gaps. Names have the form vms/web.
  berth watch vms migrations
  berth watch --name vms/web --name hosts/h1
  berth watch --since 4711 --output json

With --output json, one object on each line: {\"event\", \"revision\", ...}, where
event is
  is         a record of the snapshot: kind, name, record
  put        a record that is new or changed: kind, name, record
  deleted    a record that was deleted: kind, name
  in_step    the snapshot is complete: no other records exist
  progress   nothing else has changed up to this revision
  restart    the watch starts over: discard all records
After any line, --since REVISION continues from its revision; after \"is\" start
over.")]
pub struct Watch {
    /// Kinds of records to watch (default: all but the audit)
    #[arg(value_enum, value_name = "KIND")]
    pub kinds: Vec<WatchKind>,
    /// Name of a record to watch (repeatable)
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Revision after which to start, instead of a snapshot
    #[arg(long, value_name = "REVISION")]
    pub since: Option<u64>,
}

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchKind {
    /// Virtual machines
    #[value(alias = "vm")]
    Vms,
    /// Migrations of VMs
    #[value(alias = "migration")]
    Migrations,
    /// Hosts of the cluster
    #[value(alias = "host")]
    Hosts,
    /// Claims of resources
    #[value(alias = "claim")]
    Claims,
    /// Long-running operations
    #[value(alias = "operation")]
    Operations,
    /// Requests of users and their outcome
    Audit,
}
