//! The HTML document around charts: it needs no other file and may load none.

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

/// Colors and line widths of charts, for pages and for SVG files. Before each color that depends on light or dark
/// stands a plain one, for programs without CSS variables.
pub(crate) const CHART_STYLE: &str = include_str!("chart.css");
/// The look, which the page of `view` and `serve` imports too, and the frame of a document. The look comes after the
/// charts' style, whose colors it sets again for both schemes.
const PAGE_STYLE: &str = concat!(include_str!("look.css"), include_str!("page.css"));
/// The bar at the top, as on that page.
const BRAND: &str = "<div class=\"top\"><b class=\"brand\">llm-in-sandbox</b></div>\n";

/// Which images take effect in a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// None.
    #[default]
    None,
    /// Those contained in the page as `data:` addresses. Nothing is loaded.
    Inline,
}

/// An HTML document. Only the style and the script given here take effect, whatever else gets into the page: the
/// content security policy names them by hash and forbids everything else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    /// Title, as plain text.
    pub title: &'a str,
    /// Style rules besides the common ones for text, tables and charts.
    pub style: &'a str,
    /// Script, run at the end.
    pub script: &'a str,
    /// The images in the markup that are shown.
    pub images: Images,
    /// Markup before the main part.
    pub header: &'a str,
    /// Markup of the main part.
    pub main: &'a str,
    /// Last paragraph, as plain text.
    pub footer: &'a str,
}

impl Page<'_> {
    /// Returns the document. The markup is taken as it is; see [`escape`].
    pub fn render(&self) -> String {
        let Self { style, script, header, main, .. } = self;
        let style = [CHART_STYLE, PAGE_STYLE, style].concat();
        let images = match self.images {
            Images::None => "",
            Images::Inline => "img-src data:; ",
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{}'; script-src '{}'; \
             {images}base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n{BRAND}{header}<main>\n{main}</main>\n\
             <footer><p>{}</p></footer>\n<script>{script}</script>\n</body>\n</html>\n",
            hash(&style),
            hash(script),
            escape(self.title),
            escape(self.footer),
        )
    }
}

/// Escapes text for elements and attributes of HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML, and so SVG, cannot represent these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(
            escape("</td><img onerror='x'>&\"\u{1}\u{ffff}"),
            "&lt;/td&gt;&lt;img onerror=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}"
        );
        let page =
            Page { title: "<b>", footer: "<i>", main: "<p></p>", ..Page::default() }.render();
        assert!(page.contains("<title>&lt;b&gt;</title>") && page.contains("<p>&lt;i&gt;</p>"));
        assert!(page.contains("<main>\n<p></p></main>"));
    }

    #[test]
    fn the_policy_names_the_style_and_the_script() {
        let page = Page { style: "p{}", script: "1", ..Page::default() }.render();
        let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        for text in [style, "1"] {
            assert!(page.contains(&hash(text)), "{text}");
        }
    }
}
