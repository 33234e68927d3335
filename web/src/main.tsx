// Starts the page.
import { render } from 'preact';
import { App } from './app';
import { start } from './lib/api';
import { embedded } from './lib/embedded';
import './lib/theme';
import './styles/base.css';
import './styles/text.css';
import './styles/views.css';
import './styles/episode.css';
import 'uplot/dist/uPlot.min.css';

if (embedded?.start && (location.hash === '' || location.hash === '#')) location.replace(embedded.start);

void start().finally(() => {
  const root = document.getElementById('app') ?? document.body.appendChild(Object.assign(document.createElement('div'), { id: 'app' }));
  render(<App />, root);
});
