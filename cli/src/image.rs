//! `berth image`: images of the cluster.
//!
//! Not here: how a file goes to the cluster (`upload`), and how a host downloads one (`download`).

mod download;
mod progress;
mod upload;

use berth_domain::image::{Image, ImageFile};
use berth_domain::name::ImageName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::DiskFormat;
use berth_proto::conductor::v1::CopyImageRequest;
use berth_proto::image::v1::image_service_client::ImageServiceClient;
use berth_proto::image::v1::{
    DeleteImageRequest, GetImageRequest, Image as Wire, ListImagesRequest,
};
use serde_json::{Value, json};

use crate::arguments::Image as Verb;
use crate::output::{Columns, Lines};
use crate::session::{Session, creator, ended, request_id, resource, short};
use crate::{all_pages, bar, call, failure, migration, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<5, 4> = Columns {
    usual: ["image", "format", "size", "disk", "hosts"],
    wide: ["file", "sha256", "project", "creator"],
};

/// Runs the command.
///
/// # Errors
///
/// The refusal of the scheduler or the conductor.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Add(options) => {
            let image = match &options.url {
                Some(url) => download::add(session, &options, url).await?,
                None => upload::add(session, &options).await?,
            };
            show_one(session, &image, None)
        }
        Verb::List => list(session).await,
        Verb::Show { image } => {
            let request = GetImageRequest {
                name: resource("images", &image),
                ..Default::default()
            };
            let response = read!(session, ImageServiceClient, get_image, request)?;
            let image = response.image.unwrap_or_default();
            show_one(session, &image, Some(response.vm_count))
        }
        Verb::Copy { image, hosts, .. } => copy(session, &image, &hosts).await,
        Verb::Remove { image } => {
            let request = DeleteImageRequest {
                name: resource("images", &image),
                uid: String::new(),
                request_id: request_id(None),
            };
            call!(session, ImageServiceClient, delete_image, request)?;
            let sentence = format!("image {image} is removed; its hosts delete their files");
            session.done(&resource("images", &image), "removed", sentence)
        }
    }
}

/// Returns the format of an image that the name of a disk means; nothing where it is none of the cluster's.
///
/// # Errors
///
/// When the schedulers cannot be reached.
pub(crate) async fn format_of(session: &Session, text: &str) -> anyhow::Result<Option<DiskFormat>> {
    let file = text.parse::<ImageFile>().ok();
    let named = || ImageName::new(text).ok();
    let Some(name) = file.map(|file| file.name().clone()).or_else(named) else {
        return Ok(None);
    };
    let request = GetImageRequest {
        name: resource("images", name.as_str()),
        ..Default::default()
    };
    match read!(session, ImageServiceClient, get_image, request) {
        Ok(response) => {
            let image: Image = response.image.unwrap_or_default().try_into()?;
            Ok(Some(image.format))
        }
        // It is a file of the hosts, or the schedulers are older than images.
        Err(refusal) if has_none(&refusal) => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

fn has_none(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::NotFound | Code::PermissionDenied)
        || refusal.reason == "UNIMPLEMENTED"
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListImagesRequest::default();
    let images = all_pages!(session, ImageServiceClient, list_images, request, images);
    if session.for_programs() {
        let values: Vec<Value> = images
            .into_iter()
            .map(|wire| value(&wire))
            .collect::<anyhow::Result<_>>()?;
        return output::value(&values);
    }
    let mut rows = Vec::new();
    for wire in images {
        let copies = wire.copy_count;
        let image = Image::try_from(wire)?;
        let hosts = match image.content {
            Some(_) => copies.to_string(),
            None => "being added".to_owned(),
        };
        let usual = [
            image.name.to_string(),
            image.format.as_str().to_owned(),
            length(&image),
            disk(&image),
            hosts,
        ];
        let wide = [
            image.file().to_string(),
            output::or_dash(image.content.map(|content| content.sha256)),
            image.ownership.project_name().to_owned(),
            creator(&image.ownership),
        ];
        rows.push((usual, wide));
    }
    output::list(&COLUMNS, rows, "there is no image")
}

fn show_one(session: &Session, wire: &Wire, vm_count: Option<u32>) -> anyhow::Result<()> {
    if session.for_programs() {
        let mut value = value(wire)?;
        value["copies"] = json!(Image::try_from(wire.clone())?.copies);
        if let Some(count) = vm_count {
            value["vm_count"] = json!(count);
        }
        return output::value(&value);
    }
    let image = Image::try_from(wire.clone())?;
    let hosts: Vec<&str> = image.copies.iter().map(|host| host.as_str()).collect();
    let hosts = match (image.content, hosts.as_slice()) {
        (None, _) => "none yet: it is being added".to_owned(),
        (Some(_), []) => "none: it is lost".to_owned(),
        (Some(_), hosts) => hosts.join(" "),
    };
    let properties = image.properties.0.iter();
    let properties: Vec<String> = properties.map(|(k, v)| format!("{k}={v}")).collect();
    let mut fields = vec![
        ("image", image.name.to_string()),
        ("format", image.format.as_str().to_owned()),
        ("size", length(&image)),
        ("disk", disk(&image)),
        (
            "sha256",
            output::or_dash(image.content.map(|content| content.sha256)),
        ),
        ("properties", or_none(&properties)),
        ("hosts", hosts),
        ("file", image.file().to_string()),
        ("project", image.ownership.project_name().to_owned()),
        ("creator", creator(&image.ownership)),
        ("added", migration::time(image.created_at)),
    ];
    if let Some(count) = vm_count {
        fields.push(("VMs", count.to_string()));
    }
    output::fields(&fields);
    Ok(())
}

fn or_none(words: &[String]) -> String {
    match words {
        [] => "-".to_owned(),
        words => words.join(" "),
    }
}

fn length(image: &Image) -> String {
    output::or_dash(
        image
            .content
            .map(|content| bar::bytes(content.length_bytes)),
    )
}

fn disk(image: &Image) -> String {
    output::or_dash(
        image
            .content
            .map(|content| bar::bytes(content.virtual_bytes)),
    )
}

/// Returns an image as a list shows it, without its hosts.
fn value(wire: &Wire) -> anyhow::Result<Value> {
    let image = Image::try_from(wire.clone())?;
    let content = image.content;
    Ok(json!({
        "name": image.name,
        "uid": image.uid,
        "format": image.format.as_str(),
        "file_name": image.file().to_string(),
        "length_bytes": content.map(|content| content.length_bytes),
        "virtual_bytes": content.map(|content| content.virtual_bytes),
        "sha256": content.map(|content| content.sha256.to_string()),
        "properties": image.properties,
        "copy_count": wire.copy_count,
        "project": image.ownership.project_name(),
        "creator": image.ownership.creator,
        "created_at": image.created_at,
    }))
}

/// Copies an image, and shows what became of it on each host.
async fn copy(session: &Session, image: &str, hosts: &[String]) -> anyhow::Result<()> {
    let request = CopyImageRequest {
        name: resource("images", image),
        hosts: hosts.iter().map(|host| resource("hosts", host)).collect(),
    };
    let mut conductor = session.conductor().await?;
    let results = conductor.copy_image(request).await;
    let mut results = results
        .map_err(|status| upload::refusal(&status))?
        .into_inner();
    let (mut values, mut failed) = (Vec::new(), 0);
    let broken = loop {
        let result = match results.message().await {
            Ok(Some(result)) => result,
            Ok(None) => break None,
            Err(status) => break Some(ended(&status)),
        };
        let host = short(&result.host).to_owned();
        let refusal = result.refusal.map(Refusal::try_from).transpose()?;
        failed += usize::from(refusal.is_some());
        let sentence = match (&refusal, result.fetched) {
            (Some(refusal), _) => format!("{host}: failed: {}", refusal.message),
            (None, true) => format!("{host}: copied"),
            (None, false) => format!("{host}: had it already"),
        };
        if session.for_programs() {
            let refusal = refusal
                .as_ref()
                .map(|no| output::refusal_value(no)["error"].clone());
            values.push(json!({"host": host, "fetched": result.fetched, "refusal": refusal}));
        } else {
            output::print(Lines::from(sentence));
        }
    };
    if session.for_programs() {
        output::value(&values)?;
    }
    match (broken, failed) {
        (Some(refusal), _) => Err(refusal.into()),
        (None, 0) => Ok(()),
        (None, _) => Err(failure::Reported.into()),
    }
}
