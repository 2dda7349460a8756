//! What can be typed to follow what happens.

use clap::Args;

/// What to follow.
#[derive(Debug, Args)]
#[command(after_help = "\
Begins with what there is (\"is\"), then tells every change. It goes on at another scheduler
when the one that it asks goes away, and leaves nothing out. Names are as in vms/web.
  berth watch vms migrations
  berth watch --name vms/web --name hosts/h1
  berth watch --since 4711 --output json

With --output json, one object on each line: {\"event\", \"revision\", ...}, where event is
  is         a record as it was when the watch began: kind, name, record
  put        a record that is new or changed: kind, name, record
  deleted    a record that is gone: kind, name
  in_step    everything up to here was told: what was not told before does not exist
  progress   nothing else has changed up to here
  restart    it begins anew, as when too much has changed meanwhile: forget what was told
After any line, --since REVISION with its revision goes on; after \"is\" begin anew.")]
pub struct Watch {
    /// Of which kinds; all of them but the audit unless some are named
    #[arg(value_enum, value_name = "KIND")]
    pub kinds: Vec<WatchKind>,
    /// Only this record (can be repeated)
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Tell what has changed since this revision, rather than begin with what there is
    #[arg(long, value_name = "REVISION")]
    pub since: Option<u64>,
}

/// What can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchKind {
    /// VMs
    #[value(alias = "vm")]
    Vms,
    /// Migrations
    #[value(alias = "migration")]
    Migrations,
    /// Hosts
    #[value(alias = "host")]
    Hosts,
    /// Claims
    #[value(alias = "claim")]
    Claims,
    /// Operations
    #[value(alias = "operation")]
    Operations,
    /// Who asked for what, and what was decided
    Audit,
}
