//! Links that log a browser in to the page of this member.

use berth_domain::refusal::{Code, Refusal};
use berth_proto::cluster::v1;
use berth_proto::convert::field;
use berth_proto::status::to_status;
use berth_tls::Peer;
use tokio::time::Instant;
use tonic::Status;

use super::Context;
use crate::page::logins::{LINK_LIFETIME, SESSION_LIFETIME};
use crate::page::{PageAccess, login_refused};

/// Makes a link with the rights of a caller.
///
/// # Errors
///
/// Why there is none.
pub(super) fn create(
    context: &Context,
    peer: Option<&Peer>,
) -> Result<v1::CreatePageLoginResponse, Status> {
    let Some(PageAccess {
        url,
        is_encrypted,
        logins,
    }) = context.page()
    else {
        let message = "this scheduler does not serve the page";
        return Err(off(
            "PAGE_NOT_SERVED",
            message,
            "set page_listen in its configuration, or name a scheduler that serves it with --scheduler",
        ));
    };
    let caller = peer.and_then(|peer| Some((peer, peer.identity.as_ref()?)));
    let Some((peer, identity)) = caller.filter(|_| *is_encrypted) else {
        return Ok(v1::CreatePageLoginResponse {
            url: url.clone(),
            ..v1::CreatePageLoginResponse::default()
        });
    };
    let Some(logins) = logins else {
        let message = format!("the page at {url} requires a certificate in the browser");
        return Err(off(
            "PAGE_LOGIN_OFF",
            &message,
            "set page_login = true in the scheduler's configuration, or import a certificate into the browser",
        ));
    };
    let link = logins.create_link(peer, Instant::now());
    let link = link.map_err(|why| to_status(&login_refused(why)))?;
    let lifetime = |duration: std::time::Duration| field::duration(duration.as_millis() as u64);
    Ok(v1::CreatePageLoginResponse {
        url: format!("{url}login?token={link}"),
        principal: identity.principal(),
        link_lifetime: Some(lifetime(LINK_LIFETIME)),
        session_lifetime: Some(lifetime(SESSION_LIFETIME)),
    })
}

fn off(reason: &str, message: &str, hint: &str) -> Status {
    let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
    to_status(&refusal.with_hint(hint))
}
