//! `/`: which versions are spoken.

use serde_json::json;

use crate::call::Call;
use crate::fault::Fault;
use crate::microversion::Microversion;
use crate::reply::Reply;

pub(super) fn show(call: &Call<'_>) -> Result<Reply, Fault> {
    let version = json!({
        "id": format!("v{}", Microversion::MIN),
        "min_version": Microversion::MIN.to_string(),
        "max_version": Microversion::MAX.to_string(),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    });
    let reply = Reply::json(&json!({"versions": [version]}))?;
    Ok(reply.modified(call.now()))
}
