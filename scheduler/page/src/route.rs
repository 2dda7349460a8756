//! Which view a path and a query name, what it reads, and what it follows.
//!
//! Invariant: a view is for callers that may call every method of the API that it reads: the table of roles
//! is the same.

use crate::action::Action;
use crate::assets::Asset;
use crate::form::{Form, PATH_MAX, segment};
use crate::hosts::Grouping;
use crate::text::encoded;

const GET_HOST: &str = "berth.host.v1.HostService/GetHost";
const LIST_HOSTS: &str = "berth.host.v1.HostService/ListHosts";
const LIST_AGGREGATES: &str = "berth.policy.v1.AggregateService/ListAggregates";
const LIST_VOLUMES: &str = "berth.volume.v1.VolumeService/ListVolumes";
const PLAN_DRAIN: &str = "berth.scheduler.v1.MoveService/PlanDrain";
const GET_OPERATION: &str = "berth.operation.v1.OperationService/GetOperation";
const GET_MIGRATION: &str = "berth.scheduler.v1.SchedulerService/GetMigration";
const GET_VM: &str = "berth.scheduler.v1.SchedulerService/GetVm";
const LIST_VMS: &str = "berth.scheduler.v1.SchedulerService/ListVms";
const LIST_MIGRATIONS: &str = "berth.scheduler.v1.SchedulerService/ListMigrations";
const LIST_FLAVORS: &str = "berth.scheduler.v1.SchedulerService/ListFlavors";
const SCHEDULE_VM: &str = "berth.scheduler.v1.SchedulerService/ScheduleVm";
const LIST_OPERATIONS: &str = "berth.operation.v1.OperationService/ListOperations";
const STATUS: &str = "berth.cluster.v1.ClusterService/GetClusterStatus";
const LIST_AUDIT: &str = "berth.audit.v1.AuditService/ListAuditEntries";
const PLAN_BALANCE: &str = "berth.planner.v1.PlannerService/PlanBalance";
const LIST_SERVICES: &str = "berth.cluster.v1.ClusterService/ListServices";
const VERIFY: &str = "berth.planner.v1.PlannerService/VerifyCluster";
const READ_CONSOLE: &str = "berth.conductor.v1.ConductorService/ReadConsole";
const WATCH_MIGRATION: &str = "berth.conductor.v1.ConductorService/WatchMigration";
const WATCH: &str = "berth.event.v1.EventService/Watch";
const HISTORY: &str = "berth.event.v1.EventService/GetHistory";

/// What is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A file of the program.
    Asset(Asset),
    /// The cluster as a whole.
    Cluster,
    /// What the failure of each host would mean.
    Failover,
    /// The hosts.
    Hosts(HostsQuery),
    /// A host, by its name.
    Host(String),
    /// A page of the VMs.
    Vms(VmsQuery),
    /// A VM, by its name.
    Vm(String),
    /// What became of a VM.
    VmHistory(String),
    /// What the guest of a VM wrote on its console.
    Console(String),
    /// Where a VM of a flavor would go, or why nowhere.
    WhyNot(WhyNotQuery),
    /// A plan that would balance the hosts.
    Balance,
    /// Who requested what.
    Audit(AuditQuery),
    /// What is to be done: its view confirms it, its form has it done.
    Action(Action),
    /// A login, with the secret of its link; it is empty where there is none, and where a form has it.
    Login(String),
    /// The end of a login.
    Logout,
    /// What changes.
    Events(EventsQuery),
}

/// Which hosts are shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostsQuery {
    /// Only those with this text in their name, state, zone or aggregates.
    pub filter: String,
    /// What the squares are grouped by.
    pub grouping: Grouping,
    /// Which page of the table, from 1.
    pub page: usize,
}

/// Which VMs are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmsQuery {
    /// The token of the page.
    pub after: String,
    /// Only those of this host.
    pub host: String,
    /// Only those of this project.
    pub project: String,
}

/// Which entries of the audit are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// The token of the page.
    pub after: String,
    /// Only those about this VM.
    pub vm: String,
    /// Only those about this host.
    pub host: String,
    /// Only those of this principal.
    pub principal: String,
}

/// The VM that would be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyNotQuery {
    /// Its flavor; empty before the form is sent.
    pub flavor: String,
    /// The host that it is to be placed on, if one.
    pub host: String,
}

/// What a stream follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsQuery {
    /// The records.
    pub topic: Topic,
    /// The revision of the view that is shown.
    pub after: u64,
}

/// The records of which a change changes a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// All of them.
    Cluster,
    /// Hosts and claims.
    Hosts,
    /// A host, and the claims there.
    Host(String),
    /// VMs.
    Vms,
    /// A VM, with its claims, migrations and operations.
    Vm(String),
}

impl Topic {
    /// Returns the path of its stream.
    #[must_use]
    pub fn path(&self, after: u64) -> String {
        let (kind, name) = match self {
            Self::Cluster => ("cluster", ""),
            Self::Hosts => ("hosts", ""),
            Self::Host(name) => ("host", name.as_str()),
            Self::Vms => ("vms", ""),
            Self::Vm(name) => ("vm", name.as_str()),
        };
        match name {
            "" => format!("/events?of={kind}&after={after}"),
            name => format!("/events?of={kind}&name={}&after={after}", encoded(name)),
        }
    }

    fn read(form: &Form) -> Option<Self> {
        let name = || form.get("name").map(str::to_owned);
        match form.get("of")? {
            "cluster" => Some(Self::Cluster),
            "hosts" => Some(Self::Hosts),
            "host" => name().map(Self::Host),
            "vms" => Some(Self::Vms),
            "vm" => name().map(Self::Vm),
            _ => None,
        }
    }
}

impl Route {
    /// Returns what a request names, if there is such a thing.
    #[must_use]
    pub fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        if path.len() > PATH_MAX {
            return None;
        }
        if let Some(asset) = Asset::ALL.into_iter().find(|asset| asset.path() == path) {
            return Some(Self::Asset(asset));
        }
        let form = Form::parse(query.unwrap_or_default())?;
        let text = |key| form.get(key).unwrap_or_default().to_owned();
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let named = |part: &str| segment(part).filter(|name| !name.is_empty());
        match parts[..] {
            [""] => Some(Self::Cluster),
            ["failover"] => Some(Self::Failover),
            ["hosts"] => Some(Self::Hosts(HostsQuery {
                filter: text("q"),
                grouping: Grouping::read(form.get("by")),
                page: form
                    .get("page")
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(1)
                    .max(1),
            })),
            ["hosts", name] => named(name).map(Self::Host),
            ["vms"] => Some(Self::Vms(VmsQuery {
                after: text("after"),
                host: text("host"),
                project: text("project"),
            })),
            ["vms", name] => named(name).map(Self::Vm),
            ["vms", name, "history"] => named(name).map(Self::VmHistory),
            ["vms", name, "console"] => named(name).map(Self::Console),
            [collection, name, verb] => {
                Action::parse(collection, named(name)?, verb).map(Self::Action)
            }
            ["why-not"] => Some(Self::WhyNot(WhyNotQuery {
                flavor: text("flavor"),
                host: text("host"),
            })),
            ["balance"] => Some(Self::Balance),
            ["audit"] => Some(Self::Audit(AuditQuery {
                after: text("after"),
                vm: text("vm"),
                host: text("host"),
                principal: text("principal"),
            })),
            ["login"] => Some(Self::Login(text("token"))),
            ["logout"] => Some(Self::Logout),
            ["events"] => Some(Self::Events(EventsQuery {
                topic: Topic::read(&form)?,
                after: form.get("after")?.parse().ok()?,
            })),
            _ => None,
        }
    }

    /// Returns the method of the API that it has carried out, if it changes something.
    #[must_use]
    pub fn change(&self) -> Option<&'static str> {
        match self {
            Self::Action(action) => Some(action.method()),
            Self::Asset(_)
            | Self::Cluster
            | Self::Failover
            | Self::Hosts(_)
            | Self::Host(_)
            | Self::Vms(_)
            | Self::Vm(_)
            | Self::VmHistory(_)
            | Self::Console(_)
            | Self::WhyNot(_)
            | Self::Balance
            | Self::Audit(_)
            | Self::Login(_)
            | Self::Logout
            | Self::Events(_) => None,
        }
    }

    /// Returns the methods of the API that it reads.
    #[must_use]
    pub fn methods(&self) -> &'static [&'static str] {
        match self {
            // It is the same for all callers.
            Self::Asset(_) => &[STATUS],
            Self::Cluster => &[
                STATUS,
                LIST_SERVICES,
                LIST_OPERATIONS,
                LIST_MIGRATIONS,
                LIST_HOSTS,
                LIST_VMS,
            ],
            Self::Failover => &[STATUS, VERIFY],
            Self::Hosts(_) => &[STATUS, LIST_HOSTS, LIST_AGGREGATES],
            Self::Host(_) => &[STATUS, GET_HOST, LIST_VOLUMES],
            Self::Vms(_) => &[STATUS, LIST_VMS],
            Self::Vm(_) => &[
                STATUS,
                GET_VM,
                LIST_OPERATIONS,
                LIST_MIGRATIONS,
                WATCH_MIGRATION,
            ],
            Self::Console(_) => &[STATUS, GET_VM, READ_CONSOLE],
            Self::VmHistory(_) => &[STATUS, GET_VM, HISTORY],
            Self::WhyNot(_) => &[STATUS, LIST_FLAVORS, SCHEDULE_VM],
            Self::Balance => &[STATUS, PLAN_BALANCE],
            Self::Audit(_) => &[STATUS, LIST_AUDIT],
            Self::Action(action) => match action {
                Action::Cordon(_) | Action::Uncordon(_) => &[STATUS, GET_HOST],
                Action::Drain(_) => &[STATUS, GET_HOST, PLAN_DRAIN],
                Action::Migrate(_) => &[STATUS, GET_VM],
                Action::CancelOperation(_) => &[STATUS, GET_OPERATION],
                Action::AbortMigration(_) => &[STATUS, GET_MIGRATION],
            },
            // Those who are not logged in may.
            Self::Login(_) | Self::Logout => &[],
            Self::Events(_) => &[WATCH],
        }
    }

    /// Returns what changes it.
    #[must_use]
    pub fn topic(&self) -> Option<Topic> {
        match self {
            Self::Cluster => Some(Topic::Cluster),
            Self::Hosts(_) => Some(Topic::Hosts),
            Self::Host(name) => Some(Topic::Host(name.clone())),
            Self::Vms(_) => Some(Topic::Vms),
            Self::Vm(name) => Some(Topic::Vm(name.clone())),
            // They cost much, or are of a moment: they are loaded again by hand.
            Self::Failover
            | Self::VmHistory(_)
            | Self::Console(_)
            | Self::WhyNot(_)
            | Self::Balance
            | Self::Audit(_)
            | Self::Action(_) => None,
            Self::Asset(_) | Self::Events(_) | Self::Login(_) | Self::Logout => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> Option<Route> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Route::parse(path, query)
    }

    #[test]
    fn paths_name_views() {
        assert_eq!(parse("/"), Some(Route::Cluster));
        assert_eq!(parse("/page.js"), Some(Route::Asset(Asset::Script)));
        assert_eq!(parse("/hosts/h%201"), Some(Route::Host("h 1".into())));
        assert_eq!(parse("/vms/a/history"), Some(Route::VmHistory("a".into())));
        assert_eq!(parse("/vms/a/console"), Some(Route::Console("a".into())));
        let hosts = HostsQuery {
            filter: "up rack".into(),
            grouping: Grouping::Zone,
            page: 3,
        };
        assert_eq!(
            parse("/hosts?q=up+rack&by=zone&page=3"),
            Some(Route::Hosts(hosts))
        );
        let first = HostsQuery {
            page: 1,
            ..HostsQuery::default()
        };
        assert_eq!(parse("/hosts?page=0&by=x"), Some(Route::Hosts(first)));
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in [
            "",
            "//",
            "/x",
            "/hosts/",
            "/hosts/a/b",
            "/vms/%ff",
            "/vms/a/other",
            "/vms/a/drain",
            "/vms//migrate",
            "/hosts/a/migrate",
            "/operations/a",
            "/operations/a/abort",
            "/events",
            "/events?of=cluster",
            "/events?of=x&after=1",
            "/events?of=vm&after=1",
            "/events?of=cluster&after=-1",
            "/hosts?q=%ff",
            "/../hosts",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(parse(&format!("/vms/{}", "a".repeat(PATH_MAX))), None);
    }

    /// Goal: the path that a view names leads to the stream of that view.
    #[test]
    fn a_stream_is_of_what_its_view_shows() {
        for topic in [
            Topic::Cluster,
            Topic::Hosts,
            Topic::Host("a&name=b <".into()),
            Topic::Vms,
            Topic::Vm("ä/%".into()),
        ] {
            let expected = Some(Route::Events(EventsQuery {
                topic: topic.clone(),
                after: 7,
            }));
            assert_eq!(parse(&topic.path(7)), expected, "{topic:?}");
        }
    }
}
