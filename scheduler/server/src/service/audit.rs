//! `berth.audit.v1.AuditService`.

use berth_domain::audit::{Entry, Refused, RequestSummary};
use berth_domain::id::TimeMs;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::Refusal;
use berth_proto::audit::v1;
use berth_proto::audit::v1::audit_service_server::AuditService;
use berth_proto::convert::audit::read_name;
use berth_proto::convert::page::Page;
use berth_proto::convert::{Invalid, field};
use berth_proto::status::to_status;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::list;

/// The longest name of a principal or method that is looked for.
const WORD_MAX: usize = 256;

/// Serves `AuditService`.
pub(crate) struct AuditApi(pub(crate) Context);

#[tonic::async_trait]
impl AuditService for AuditApi {
    async fn get_audit_entry(
        &self,
        request: Request<v1::GetAuditEntryRequest>,
    ) -> Result<Response<v1::GetAuditEntryResponse>, Status> {
        let wire = request.into_inner();
        let revision = read_name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let entry = state.audit().get(&revision);
        let entry = entry.ok_or_else(|| {
            let refusal = Refusal::not_found("audit_entry", revision);
            to_status(&refusal.with_hint("an old one may no longer be kept"))
        })?;
        Ok(Response::new(v1::GetAuditEntryResponse {
            audit_entry: Some((&**entry).into()),
            revision: state.revision(),
        }))
    }

    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Result<Response<v1::ListAuditEntriesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let before = before(&page)?;
        let filter = Filter::read(wire.filter)?;
        let state = self.0.state(wire.consistency).await?;
        let entries = state.audit().range(..before).rev();
        let entries = entries.map(|(_, entry)| &**entry);
        let entries = entries.filter(|entry| filter.matches_entry(entry));
        let (entries, next_page_token) = page.cut(entries, |entry| entry.revision.to_string());
        Ok(Response::new(v1::ListAuditEntriesResponse {
            audit_entries: entries.into_iter().map(Into::into).collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }

    async fn list_refusals(
        &self,
        request: Request<v1::ListRefusalsRequest>,
    ) -> Result<Response<v1::ListRefusalsResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let before = before(&page)?;
        let filter = Filter::read(wire.filter)?;
        self.0.must_lead()?;
        let refusals = self.0.refusals();
        let latest = refusals.latest().filter(|r| filter.matches_refused(r));
        let latest = latest.filter(|r| r.number < before);
        let mut latest: Vec<&Refused> = latest.collect();
        // Those that count up change their place in time; pages need one that stays.
        latest.sort_by_key(|refused| std::cmp::Reverse(refused.number));
        let (found, next_page_token) = page.cut(latest, |refused| refused.number.to_string());
        Ok(Response::new(v1::ListRefusalsResponse {
            refusals: found.into_iter().map(Into::into).collect(),
            next_page_token,
        }))
    }
}

/// Returns the number before which a page begins.
fn before(page: &Page) -> Result<u64, Invalid> {
    let before = list::after(page, |text| text.parse().ok())?;
    Ok(before.unwrap_or(u64::MAX))
}

/// The selected audit entries.
struct Filter {
    vm: Option<VmName>,
    host: Option<HostName>,
    principal: Option<String>,
    method: Option<String>,
    since: TimeMs,
}

impl Filter {
    fn read(wire: Option<v1::AuditFilter>) -> Result<Self, Invalid> {
        let within = |invalid: Invalid| invalid.within("filter");
        let wire = wire.unwrap_or_default();
        let word = |text: String, name: &str| {
            let text = field::text(text, name, WORD_MAX).map_err(within)?;
            Ok((!text.is_empty()).then_some(text))
        };
        let since = field::optional_time(wire.since, "since").map_err(within)?;
        Ok(Self {
            vm: field::optional_name(&wire.vm, "vm").map_err(within)?,
            host: field::optional_name(&wire.host, "host").map_err(within)?,
            principal: word(wire.principal, "principal")?,
            method: word(wire.method, "method")?,
            since: since.unwrap_or_default(),
        })
    }

    fn matches(&self, at: TimeMs, principal: &str, request: &RequestSummary) -> bool {
        let chosen = request.choice.as_ref().map(|choice| &choice.host);
        let host = |host: &HostName| request.host.as_ref() == Some(host) || chosen == Some(host);
        at >= self.since
            && self
                .vm
                .as_ref()
                .is_none_or(|vm| request.vm.as_ref() == Some(vm))
            && self.host.as_ref().is_none_or(host)
            && self.principal.as_ref().is_none_or(|who| who == principal)
            && self
                .method
                .as_ref()
                .is_none_or(|method| *method == request.method)
    }

    fn matches_entry(&self, entry: &Entry) -> bool {
        self.matches(entry.at, &entry.principal, &entry.request)
    }

    fn matches_refused(&self, refused: &Refused) -> bool {
        self.matches(refused.last_at, &refused.principal, &refused.request)
    }
}
