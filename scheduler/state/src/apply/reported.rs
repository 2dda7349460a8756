//! Custom resource classes and traits that reports of hosts bring, and that go with the hosts.
//!
//! Invariant, from cluster version 4 on: a name that only reports brought is had by a provider. So
//! hosts never hold more names than their reports have, whatever they reported before.

use std::collections::BTreeSet;

use berth_domain::bound::REPORTED_NAMES_MAX;
use berth_domain::host::HostReport;
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{Custom, ResourceClass};
use berth_domain::version::ServiceVersion;

use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Refuses more custom names than a host may bring. Names that exist count too: what a host may
    /// report does not depend on what others report.
    pub(super) fn examine_reported_names(
        &self,
        host: &HostName,
        report: &HostReport,
    ) -> Result<(), Refusal> {
        if !self.may_write(ServiceVersion::BOUNDED_RECORDS) {
            return Ok(());
        }
        let classes: BTreeSet<&ResourceClass> = classes_of(report).collect();
        let traits = report.traits.iter().filter(|name| name.is_custom());
        let count = classes.len() + traits.count();
        if count <= REPORTED_NAMES_MAX {
            return Ok(());
        }
        Err(Refusal::new(
            Code::ResourceExhausted,
            "TOO_MANY_REPORTED_NAMES",
            format!(
                "host {host} reports {count} custom traits and classes of persistent memory, at most \
                 {REPORTED_NAMES_MAX} are possible"
            ),
        )
        .with_hint("remove traits or labels of pmem_namespaces from the agent's configuration")
        .with("host", host)
        .with("count", count)
        .with("max", REPORTED_NAMES_MAX))
    }

    /// Creates the custom traits and the classes of persistent memory that a host reports and that do
    /// not exist yet.
    pub(super) fn create_missing(&mut self, report: &HostReport) {
        for class in classes_of(report) {
            self.create_reported_class(class);
        }
        for name in &report.traits {
            if !self.state.knows_trait(name) {
                let custom = self.reported(name);
                self.put_trait(custom);
                self.left_names.traits.insert(name.clone());
            }
        }
    }

    /// Creates a class on behalf of a host, unless it exists.
    pub(super) fn create_reported_class(&mut self, class: &ResourceClass) {
        if !self.state.knows_class(class) {
            let custom = self.reported(class);
            self.put_class(custom);
            self.left_names.classes.insert(class.clone());
        }
    }

    fn reported<Name: Clone>(&self, name: &Name) -> Custom<Name> {
        Custom {
            name: name.clone(),
            created_at: self.now(),
            updated_at: self.now(),
            reported: self.may_write(ServiceVersion::REPORTED_NAMES),
        }
    }

    /// Removes the names that only reports brought and that no provider has any more. Only those are
    /// looked at that a provider of this command lost, or that it created.
    pub(super) fn remove_left_names(&mut self) {
        let left = std::mem::take(&mut self.left_names);
        for class in left.classes {
            let custom = self.state.class(&class);
            if custom.is_some_and(|custom| custom.reported)
                && self.state.providers_of_custom(&class).next().is_none()
            {
                self.remove_class(&class);
            }
        }
        for name in left.traits {
            let custom = self.state.custom_trait(&name);
            if custom.is_some_and(|custom| custom.reported)
                && self.state.providers_with(&name).next().is_none()
            {
                self.remove_trait(&name);
            }
        }
    }
}

/// Returns the classes of the namespaces of a report; one for each namespace.
fn classes_of(report: &HostReport) -> impl Iterator<Item = &ResourceClass> {
    let namespaces = report.topology.pmem().iter();
    namespaces.map(|namespace| &namespace.class)
}
