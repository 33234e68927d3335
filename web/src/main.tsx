// Starts the page.
import { render } from 'preact';
import { App } from './app';
import { start } from './lib/api';
import { embedded } from './lib/embedded';
import './lib/theme';
import '../../crates/plot/src/look.css';
import './styles/base.css';
import './styles/text.css';
import './styles/views.css';
import './styles/episode.css';
import 'uplot/dist/uPlot.min.css';

if (embedded?.start && (location.hash === '' || location.hash === '#')) location.replace(embedded.start);

// A file that is dropped beside the form would replace the page.
for (const kind of ['dragover', 'drop'] as const) {
  addEventListener(kind, (event) => event.dataTransfer?.types.includes('Files') && event.preventDefault());
}

// The address with a token may be pasted into a page that is open.
addEventListener('hashchange', () => location.hash.startsWith('#token=') && void start());

void start().finally(() => {
  const root = document.getElementById('app') ?? document.body.appendChild(Object.assign(document.createElement('div'), { id: 'app' }));
  render(<App />, root);
});
