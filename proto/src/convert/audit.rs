//! Entries of the audit.

use std::sync::Arc;

use berth_domain::audit::{
    Chosen, Entry, Outcome, Points, RANKED_MAX, Ranked, Refused, RequestSummary, SUMMARY_MAX,
    weigher_name,
};

use super::field::{self, Invalid};
use super::name::ResourceName;
use crate::audit::v1;
use crate::audit::v1::audit_entry::Outcome as WireOutcome;

/// The longest name of a method, weigher or principal.
const WORD_MAX: usize = 256;
/// The most weighers.
const WEIGHERS_MAX: usize = 64;

/// Returns the name of an entry.
#[must_use]
pub fn write_name(revision: u64) -> String {
    format!("auditEntries/{revision}")
}

/// Reads the name of an entry: its revision.
///
/// # Errors
///
/// When it is of another kind, or no number stands behind the slash.
pub fn read_name(text: &str, field: &str) -> Result<u64, Invalid> {
    number(text, "auditEntries/", field)
}

fn number(text: &str, collection: &str, field: &str) -> Result<u64, Invalid> {
    let number = text.strip_prefix(collection).unwrap_or_default();
    let number = number
        .parse()
        .ok()
        .filter(|n: &u64| n.to_string() == number);
    number.ok_or_else(|| Invalid::new(field, format!("must be a name like {collection}4711")))
}

impl From<&RequestSummary> for v1::RequestSummary {
    fn from(request: &RequestSummary) -> Self {
        Self {
            method: request.method.clone(),
            request_id: request
                .request_id
                .map(|id| id.to_string())
                .unwrap_or_default(),
            vm: field::name_or_empty(request.vm.as_ref()),
            host: field::name_or_empty(request.host.as_ref()),
            summary: request.summary.clone(),
            choice: request.choice.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<v1::RequestSummary> for RequestSummary {
    type Error = Invalid;

    fn try_from(wire: v1::RequestSummary) -> Result<Self, Invalid> {
        Ok(Self {
            method: field::required_text(wire.method, "method", WORD_MAX)?,
            request_id: field::optional_uuid(&wire.request_id, "request_id")?,
            vm: field::optional_name(&wire.vm, "vm")?,
            host: field::optional_name(&wire.host, "host")?,
            summary: field::text(wire.summary, "summary", SUMMARY_MAX)?,
            choice: field::optional(wire.choice, "choice")?.map(Arc::new),
        })
    }
}

impl From<&Chosen> for v1::Chosen {
    fn from(choice: &Chosen) -> Self {
        Self {
            host: choice.host.resource_name(),
            hosts_considered: choice.hosts,
            hosts_fitting: choice.passed,
            hosts_tried: choice.tried,
            ranking: choice.ranking.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Chosen> for Chosen {
    type Error = Invalid;

    fn try_from(wire: v1::Chosen) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            hosts: wire.hosts_considered,
            passed: wire.hosts_fitting,
            tried: wire.hosts_tried,
            ranking: field::each(wire.ranking, "ranking", RANKED_MAX)?,
        })
    }
}

impl From<&Ranked> for v1::RankedHost {
    fn from(ranked: &Ranked) -> Self {
        let points = ranked.points.iter().map(|p| v1::Points {
            weigher: p.weigher.to_string(),
            points: p.points,
        });
        Self {
            host: ranked.host.resource_name(),
            points: points.collect(),
        }
    }
}

impl TryFrom<v1::RankedHost> for Ranked {
    type Error = Invalid;

    fn try_from(wire: v1::RankedHost) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            points: field::each(wire.points, "points", WEIGHERS_MAX)?,
        })
    }
}

impl TryFrom<v1::Points> for Points {
    type Error = Invalid;

    fn try_from(wire: v1::Points) -> Result<Self, Invalid> {
        Ok(Self {
            weigher: weigher_name(field::required_text(wire.weigher, "weigher", WORD_MAX)?),
            points: wire.points,
        })
    }
}

impl From<&Entry> for v1::AuditEntry {
    fn from(entry: &Entry) -> Self {
        Self {
            name: write_name(entry.revision),
            time: Some(field::timestamp(entry.at)),
            principal: entry.principal.clone(),
            request: Some((&entry.request).into()),
            outcome: Some(match &entry.outcome {
                Outcome::Accepted { operation } => WireOutcome::Accepted(v1::Accepted {
                    operation: field::name_or_empty(operation.as_ref()),
                }),
                Outcome::Refused(refusal) => WireOutcome::Refused(refusal.into()),
            }),
        }
    }
}

impl TryFrom<v1::AuditEntry> for Entry {
    type Error = Invalid;

    fn try_from(wire: v1::AuditEntry) -> Result<Self, Invalid> {
        let outcome = match wire.outcome {
            Some(WireOutcome::Accepted(accepted)) => Outcome::Accepted {
                operation: field::optional_name(&accepted.operation, "accepted.operation")?,
            },
            Some(WireOutcome::Refused(refusal)) => {
                Outcome::Refused(field::required(Some(refusal), "refused")?)
            }
            None => return Err(Invalid::new("outcome", "is required")),
        };
        Ok(Self {
            revision: read_name(&wire.name, "name")?,
            at: field::time(wire.time, "time")?,
            principal: wire.principal,
            request: field::required(wire.request, "request")?,
            outcome,
        })
    }
}

impl From<&Refused> for v1::Refused {
    fn from(refused: &Refused) -> Self {
        Self {
            name: format!("refusals/{}", refused.number),
            first_time: Some(field::timestamp(refused.first_at)),
            last_time: Some(field::timestamp(refused.last_at)),
            count: refused.count,
            principal: refused.principal.clone(),
            request: Some((&refused.request).into()),
            refusal: Some((&refused.refusal).into()),
        }
    }
}

impl TryFrom<v1::Refused> for Refused {
    type Error = Invalid;

    fn try_from(wire: v1::Refused) -> Result<Self, Invalid> {
        Ok(Self {
            number: number(&wire.name, "refusals/", "name")?,
            first_at: field::time(wire.first_time, "first_time")?,
            last_at: field::time(wire.last_time, "last_time")?,
            count: wire.count,
            principal: wire.principal,
            request: field::required(wire.request, "request")?,
            refusal: field::required(wire.refusal, "refusal")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::id::{OperationId, RequestId, TimeMs};
    use berth_domain::name::{HostName, VmName};
    use berth_domain::refusal::{Code, Refusal};
    use uuid::Uuid;

    use super::*;

    fn request() -> RequestSummary {
        let ranked = |host: &str, points| Ranked {
            host: HostName::new(host).unwrap(),
            points: vec![Points {
                weigher: "load".into(),
                points,
            }],
        };
        RequestSummary {
            method: "ScheduleVm".to_owned(),
            request_id: Some(RequestId(Uuid::from_u128(7))),
            vm: Some(VmName::new("a").unwrap()),
            host: None,
            summary: "flavor=small".to_owned(),
            choice: Some(Arc::new(Chosen {
                host: HostName::new("h1").unwrap(),
                hosts: 9,
                passed: 3,
                tried: 1,
                ranking: vec![ranked("h1", 7), ranked("h2", 5)],
            })),
        }
    }

    /// Goal: entries and refusals are read as they were written.
    #[test]
    fn entries_are_read_as_they_were_written() {
        let refusal = Refusal::new(Code::NotFound, "VM_NOT_FOUND", "vm a does not exist");
        let accepted = |operation| Outcome::Accepted { operation };
        let outcomes = [
            accepted(None),
            accepted(Some(OperationId(Uuid::from_u128(9)))),
            Outcome::Refused(refusal.clone()),
        ];
        for outcome in outcomes {
            let entry = Entry {
                revision: 4711,
                at: TimeMs(1_700_000_000_123),
                principal: "unverified".to_owned(),
                request: request(),
                outcome,
            };
            assert_eq!(Entry::try_from(v1::AuditEntry::from(&entry)), Ok(entry));
        }
        let refused = Refused {
            number: 3,
            first_at: TimeMs(1),
            last_at: TimeMs(2),
            count: 5,
            principal: "unverified".to_owned(),
            request: RequestSummary {
                choice: None,
                ..request()
            },
            refusal,
        };
        assert_eq!(Refused::try_from(v1::Refused::from(&refused)), Ok(refused));
    }

    #[test]
    fn names_are_numbers() {
        assert_eq!(read_name("auditEntries/7", "name"), Ok(7));
        for text in [
            "",
            "7",
            "auditEntries/",
            "auditEntries/07",
            "auditEntries/x",
            "vms/7",
        ] {
            assert!(read_name(text, "name").is_err(), "{text:?}");
        }
    }
}
