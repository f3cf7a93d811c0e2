// The site, as `make site` builds it: docs/*.md, and the files of the root that docs/site includes.
import fs from 'node:fs'
import path from 'node:path'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/weirgo/weir'
const site = 'https://weirgo.github.io/weir/'
const root = path.resolve(import.meta.dirname, '../..')

// The sidebar and llms.txt list the pages in this order, by their headings.
const groups = {
  Start: ['index', 'start', 'migrating', 'recipes', 'warnings'],
  Limits: ['algorithms', 'rules', 'costs', 'overload'],
  Services: ['routes', 'responses', 'clients', 'proxies', 'redis', 'gateway', 'pace', 'observability'],
  Reference: ['fields', 'command', 'performance', 'architecture', 'security', 'changelog'],
}

const sources = { index: 'README.md', security: 'SECURITY.md', changelog: 'CHANGELOG.md' }
const source = (page) => sources[page] ?? `docs/${page}.md`
const pages = Object.values(groups).flat()
const title = (page) => fs.readFileSync(path.join(root, source(page)), 'utf8').match(/^# (.*)$/m)[1]
const pageOf = Object.fromEntries(pages.map((page) => [source(page), page]))

// GitHub's anchors, so that links into the Markdown files hold in both places.
const slugify = (heading) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

// Links lead from file to file in the repository. Files that are no pages are on GitHub.
function rewriteLinks(md) {
  md.core.ruler.push('repository-links', ({ tokens, env }) => {
    const links = tokens.flatMap((token) => token.children ?? []).filter((token) => token.type === 'link_open')
    for (const link of links) {
      const href = link.attrGet('href')
      if (/^([a-z]+:|#)/.test(href)) continue
      const [file, anchor] = href.split('#')
      const folder = path.dirname(env.realPath ?? env.path)
      const target = path.relative(root, path.resolve(path.basename(folder) === 'site' ? root : folder, file))
      const page = pageOf[target]
      const address = page ? `/${page === 'index' ? '' : page}` : `${repository}/tree/main/${target}`
      link.attrSet('href', address + (anchor ? `#${anchor}` : ''))
    }
  })
}

// A table's empty corner is no header: it has nothing to read out.
function emptyCorners(md) {
  md.core.ruler.push('empty-corners', ({ tokens }) => {
    tokens.forEach((token, i) => {
      if (token.type === 'th_open' && tokens[i + 1].content === '') token.tag = tokens[i + 2].tag = 'td'
    })
  })
}

// Pages load nothing from elsewhere: a picture on another site, such as a badge, is its words.
function wordsOfForeignPictures(md) {
  md.core.ruler.push('foreign-pictures', ({ tokens }) => {
    for (const token of tokens.flatMap((token) => token.children ?? [])) {
      if (token.type === 'image' && /^https?:/.test(token.attrGet('src'))) token.type = 'text'
    }
  })
}

// Diagrams are drawn in the browser, and tables that do not fit can be scrolled by keyboard.
function render(md) {
  rewriteLinks(md)
  emptyCorners(md)
  wordsOfForeignPictures(md)
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, i, ...rest) => tokens[i].info.trim() === 'mermaid'
    ? `<Diagram code="${encodeURIComponent(tokens[i].content)}"/>`
    : fence(tokens, i, ...rest)
  md.renderer.rules.table_open = () => '<table tabindex="0">\n'
}

export default defineConfig({
  title: 'Weir',
  description: 'HTTP rate limiting for Go',
  base: '/weir/',
  cleanUrls: true,
  rewrites: { 'site/:page.md': ':page.md' },
  markdown: {
    anchor: { slugify },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: render,
  },
  sitemap: { hostname: site },
  head: [['link', { rel: 'icon', href: "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='7' fill='%230b6e75'/%3E%3Cpath d='M4 12h10q4 0 5 5t5 5h4M4 18h7q4 0 5 5' fill='none' stroke='%23fff' stroke-width='3' stroke-linecap='round'/%3E%3C/svg%3E" }]],
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path` },
    nav: [
      { text: 'Troubleshooting', link: '/warnings' },
      { text: 'Benchmarks', link: '/performance' },
      { text: 'Playground', link: '/playground.html', target: '_self' },
    ],
    sidebar: Object.entries(groups).map(([text, list]) => ({
      text, items: list.map((page) => ({ text: title(page), link: `/${page === 'index' ? '' : page}` })),
    })),
  },

  buildEnd({ outDir }) {
    const raw = 'https://raw.githubusercontent.com/weirgo/weir/main'
    const lists = Object.entries(groups).map(([group, list]) => `## ${group}\n\n` +
      list.map((page) => `- [${title(page)}](${raw}/${source(page)}): ${site}${page === 'index' ? '' : page}\n`).join(''))
    const about = fs.readFileSync(path.join(root, 'README.md'), 'utf8').match(/^Weir is .*$/m)[0]
    fs.writeFileSync(path.join(outDir, 'llms.txt'), `# Weir\n\n> ${about}\n\n${lists.join('\n')}`)
  },
})
