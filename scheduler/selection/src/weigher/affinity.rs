//! Soft server groups: a guest goes where other members of its group are, or where they are not.

use berth_domain::name::HostName;
use berth_domain::server_group::GroupDemand;

/// How well hosts suit a guest's server group.
#[derive(Clone, Debug, Default)]
pub struct AffinityScore {
    /// By place in the table, ascending: those that members are on.
    known: Vec<(usize, u16)>,
    /// All others.
    others: u16,
}

impl AffinityScore {
    /// Returns the scores of hosts; `place` returns the position of each in the table.
    pub fn new(group: Option<&GroupDemand>, place: impl Fn(&HostName) -> Option<usize>) -> Self {
        let Some(group) = group else {
            return Self::default();
        };
        let hosts = || {
            group
                .hosts
                .keys()
                .map(|host| (host, group.preference(host)))
        };
        let least = hosts().map(|(_, liked)| liked).min().unwrap_or(0).min(0);
        let most = hosts().map(|(_, liked)| liked).max().unwrap_or(0).max(0);
        let weigh = |liked: i64| {
            let part = (liked - least) * i64::from(u16::MAX) / (most - least).max(1);
            u16::try_from(part).unwrap_or(u16::MAX)
        };
        let known = hosts().filter_map(|(host, liked)| Some((place(host)?, weigh(liked))));
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        Self {
            known,
            others: weigh(0),
        }
    }

    /// Returns more for a host that suits the group better.
    #[must_use]
    pub fn weigh(&self, place: usize) -> u16 {
        if self.known.is_empty() {
            return self.others;
        }
        let found = self.known.binary_search_by_key(&place, |(at, _)| *at);
        found.map_or(self.others, |found| self.known[found].1)
    }
}
