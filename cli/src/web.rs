//! `berth web`: the page of the cluster in a browser.

use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::UNREACHABLE;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{CreatePageLoginRequest, CreatePageLoginResponse};
use serde_json::json;

use crate::arguments::Web;
use crate::output;
use crate::session::Session;

/// Runs `berth web`.
///
/// # Errors
///
/// The refusal of the last scheduler that serves no page, or why none answers.
pub(crate) async fn run(session: &Session, command: Web) -> anyhow::Result<()> {
    match command {
        Web::Login => login(session).await,
    }
}

async fn login(session: &Session) -> anyhow::Result<()> {
    let link = link_of_any(session).await?;
    let seconds = |duration: Option<prost_types::Duration>| duration.map_or(0, |d| d.seconds);
    let link_s = seconds(link.link_lifetime);
    let session_s = seconds(link.session_lifetime);
    if session.for_programs() {
        return output::value(&json!({
            "url": link.url,
            "principal": link.principal,
            "linkLifetime": format!("{link_s}s"),
            "sessionLifetime": format!("{session_s}s"),
        }));
    }
    if !link.principal.is_empty() {
        output::message(format!(
            "open this within {link_s} s: it logs one browser in as {} for {} hours",
            link.principal,
            session_s / 3600
        ));
    }
    output::print(link.url);
    Ok(())
}

/// Returns the link of the first scheduler that serves the page.
async fn link_of_any(session: &Session) -> Result<CreatePageLoginResponse, Refusal> {
    let mut refusal = None;
    for address in session.schedulers() {
        let call = |channel| async move {
            ClusterServiceClient::new(channel)
                .create_page_login(CreatePageLoginRequest {})
                .await
        };
        match session.at_one(address, call).await {
            Ok(link) => return Ok(link),
            // What a scheduler refuses says more than that another one does not answer.
            Err(why) if refusal.is_none() || why.code != Code::Unavailable => refusal = Some(why),
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or_else(|| {
        let message = "no scheduler is named";
        Refusal::new(Code::Unavailable, UNREACHABLE, message)
    }))
}
