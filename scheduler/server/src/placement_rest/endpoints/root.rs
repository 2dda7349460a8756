//! `/`: which versions are spoken.

use serde_json::json;

use crate::placement_rest::call::Call;
use crate::placement_rest::fault::Fault;
use crate::placement_rest::microversion::Microversion;
use crate::placement_rest::reply::Reply;

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
